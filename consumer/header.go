package consumer

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/nats-io/nats.go"

	"github.com/lobsink/lobsink/batcher"
)

// The headers of a fragment. Names are compared exactly, as NATS does.
const (
	// HeaderFinal completes the document when it is "true"; "false" is the
	// same as no header, and any other value breaks a rule.
	HeaderFinal = "Lobsink-Final"
	// HeaderIndex numbers the fragments of a document, from 1.
	HeaderIndex = "Lobsink-Index"
	// HeaderTotal is the number of fragments of the document; it has a meaning
	// on the final one only.
	HeaderTotal = "Lobsink-Total"
)

// The codes of the rules that a fragment itself can break. They are stored with
// documents and dead letters, and are labels of metrics.
const (
	CodeBadHeader   = "bad-header"
	CodeTooLarge    = "too-large"
	CodeInvalidUTF8 = "invalid-utf8"
	CodeNUL         = "nul"
)

// Meta is what the headers of a fragment say.
type Meta struct {
	Final bool
	// Index and Total are 0 when they are not given.
	Index, Total uint64
}

// ParseHeader reads the headers of a fragment. Each may stand once. Numbers are
// decimal, from 1 to 2^63-1 (what a database's bigint holds), without sign,
// leading zeros or blanks.
//
// When a value breaks a rule the reason says so, and Meta has what the other
// headers say: a final fragment with a bad index still ends its document.
func ParseHeader(h nats.Header) (Meta, *batcher.Reason) {
	var m Meta
	var reasons []string
	note := func(err error) {
		if err != nil {
			reasons = append(reasons, err.Error())
		}
	}
	if len(h) == 0 {
		return m, nil
	}
	switch v, err := single(h, HeaderFinal); {
	case err != nil:
		note(err)
	case v == "true":
		m.Final = true
	case v != "" && v != "false":
		note(fmt.Errorf("%s is %.64q; it must be \"true\" or \"false\"", HeaderFinal, v))
	}
	var err error
	m.Index, err = positive(h, HeaderIndex)
	note(err)
	m.Total, err = positive(h, HeaderTotal)
	note(err)
	if reasons == nil {
		return m, nil
	}
	text := reasons[0]
	for _, r := range reasons[1:] {
		text += "; " + r
	}
	return m, &batcher.Reason{Code: CodeBadHeader, Text: text}
}

// judge fills in what the headers of a fragment say, and makes it a hole if
// they, or its data, break a rule.
func judge(f *batcher.Fragment, h nats.Header, limit int) {
	head, reason := ParseHeader(h)
	f.Final, f.Index, f.Total = head.Final, head.Index, head.Total
	if reason == nil {
		reason = CheckText(f.Data, limit)
	}
	f.Hole = reason
}

// single returns the value of a header that may stand once; "" when it is not
// there.
func single(h nats.Header, name string) (string, error) {
	values, ok := h[name]
	switch {
	case !ok:
		return "", nil
	case len(values) != 1:
		return "", fmt.Errorf("%s stands %d times; it may stand once", name, len(values))
	case values[0] == "":
		return "", fmt.Errorf("%s has no value", name)
	}
	return values[0], nil
}

func positive(h nats.Header, name string) (uint64, error) {
	v, err := single(h, name)
	if v == "" || err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil || n == 0 || n > math.MaxInt64 || v[0] < '1' || v[0] > '9' {
		return 0, fmt.Errorf("%s is %.64q; it must be a decimal number from 1 to 2^63-1", name, v)
	}
	return n, nil
}

// CheckText checks the payload of a fragment: at most limit bytes of UTF-8
// without U+0000, which not every database can store. Good data costs no
// allocation.
//
// The library's two loops, each vectorised or eight bytes at a time, are faster
// together than one loop that does both by hand; only bad data is looked at
// again for the offset.
func CheckText(data []byte, limit int) *batcher.Reason {
	if len(data) > limit {
		return &batcher.Reason{Code: CodeTooLarge, Text: fmt.Sprintf("the fragment has %d bytes; max_fragment_bytes is %d", len(data), limit)}
	}
	nul := bytes.IndexByte(data, 0)
	if nul < 0 && utf8.Valid(data) {
		return nil
	}
	invalid := invalidUTF8(data)
	if nul < 0 || invalid >= 0 && invalid < nul {
		return &batcher.Reason{Code: CodeInvalidUTF8, Text: fmt.Sprintf("the fragment is not valid UTF-8 at byte offset %d (0x%02X)", invalid, data[invalid])}
	}
	return &batcher.Reason{Code: CodeNUL, Text: fmt.Sprintf("the fragment has U+0000 at byte offset %d", nul)}
}
