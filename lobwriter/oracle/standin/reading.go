package standin

import (
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/lobsink/lobsink/lobwriter"
)

// storedRows is Store.Rows.
func storedRows(x *context, c *Call) error {
	partition, keys := c.number("p_partition"), c.texts("p_key")
	if c.fault != nil {
		return c.fault
	}
	found, err := x.schema.Memory.Rows(background, int(partition), keys)
	var rows lobRows
	var reasonBytes []int64
	var packed packedText
	for _, r := range found {
		if !packed.has(r.Reason) {
			break
		}
		rows.add(r)
		reasonBytes = append(reasonBytes, packed.tryAdd(r.Reason))
	}
	c.setRows(&rows)
	c.setNumbers("p_row_reason_bytes", reasonBytes)
	c.setText("p_texts", string(packed))
	return err
}

// documents is Reader.Documents.
func documents(x *context, c *Call) error {
	from, to, after := c.text("p_from"), c.text("p_to"), c.text("p_after")
	state, limit := lobwriter.State(c.number("p_state")), int(c.number("p_limit"))
	if c.fault != nil {
		return c.fault
	}
	if limit < 1 || limit > 1000 {
		return failure(20810, "a limit of %d", limit)
	}
	all, err := x.schema.Memory.Documents(background, lobwriter.Query{State: state, Limit: 1 << 30})
	all = slices.DeleteFunc(all, func(d lobwriter.Document) bool {
		return d.Key < from || to != "" && d.Key > to || after != "" && d.Key == after
	})
	var rows lobRows
	var partition, created, updated, keyBytes, reasonBytes []int64
	var packed packedText
	more := int64(0)
	for _, d := range all[:min(limit, len(all))] {
		if !packed.has(d.Key, d.Reason) {
			more = 1
			break
		}
		rows.add(d.Row)
		partition, created, updated = append(partition, int64(d.Partition)), append(created, d.CreatedAt), append(updated, d.UpdatedAt)
		keyBytes, reasonBytes = append(keyBytes, packed.tryAdd(d.Key)), append(reasonBytes, packed.tryAdd(d.Reason))
	}
	c.setRows(&rows)
	c.setNumbers("p_row_partition", partition)
	c.setNumbers("p_row_created_at", created)
	c.setNumbers("p_row_updated_at", updated)
	c.setNumbers("p_row_key_bytes", keyBytes)
	c.setNumbers("p_row_reason_bytes", reasonBytes)
	c.setText("p_texts", string(packed))
	c.setNumber("p_more", more)
	return err
}

// The pieces that one call of read_body returns.
const (
	bodyPieces = 64
	pieceUnits = 8000 // three bytes each are still below 32,767
)

// readBody gives text in UTF-16 units, as a CLOB does, in pieces of whole
// characters.
func readBody(x *context, c *Call) error {
	key, generation, from, to := c.text("p_key"), c.number("p_generation"), c.number("p_from"), c.number("p_to")
	if c.fault != nil {
		return c.fault
	}
	d, units, err := x.schema.units(key)
	if err != nil && !errors.Is(err, lobwriter.ErrNotFound) {
		return err
	}
	var pieces [][]byte
	if err == nil && d.Generation == generation {
		for end := min(to, int64(len(units))); from <= end && len(pieces) < bodyPieces; {
			n := min(pieceUnits, end-from+1)
			if last := rune(units[from+n-2]); n > 1 && last >= 0xD800 && last < 0xDC00 {
				n-- // half of a pair
			}
			pieces = append(pieces, []byte(string(utf16.Decode(units[from-1:from-1+n]))))
			from += n
		}
	}
	c.setRaws("p_data", pieces)
	c.setNumber("p_next", from)
	return nil
}

// body is the text of a document as a CLOB has it.
type body struct {
	row   lobwriter.Document
	units []uint16
}

// units returns the text of a document in UTF-16 units. It keeps those of the last
// one, whose reader comes again for the rest.
func (s *Schema) units(key string) (lobwriter.Document, []uint16, error) {
	d, err := s.Memory.Document(background, key)
	if err != nil {
		return d, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.row == d {
		return d, s.last.units, nil
	}
	var text []byte
	if d, err = s.Memory.Read(background, key, func(piece []byte) error {
		text = append(text, piece...)
		return nil
	}); err != nil {
		return d, nil, err
	}
	if s.damaged[key] && len(text) > 0 {
		text[0] ^= 1
	}
	s.last = body{d, utf16.Encode([]rune(string(text)))}
	return d, s.last.units, nil
}

// versionQuery finds the set of tables whose version is asked for.
var versionQuery = regexp.MustCompile(`(?i)^SELECT NVL\(MAX\(version\), 0\) FROM (?:"[^"]+"\.)?(\w*?)schema$`)

// query answers the queries of an administrator: about what was compiled, of which
// nothing is known, and about the version of the tables.
func (s *Server) query(c *Call) error {
	switch m := versionQuery.FindStringSubmatch(c.sql); {
	case m != nil && s.Schema(strings.ToLower(m[1])) != nil:
		c.columns, c.rows = []string{"VERSION"}, [][]string{{strconv.Itoa(schemaVersion)}}
	case m == nil && strings.Contains(strings.ToUpper(c.sql), "ALL_ERRORS"):
		c.columns, c.rows = []string{"NAME", "TYPE", "LINE", "POSITION", "TEXT"}, s.compiled()
	default:
		return failure(942, "table or view does not exist")
	}
	return nil
}

func (s *Server) compiled() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.compileErrors
}
