package consumer

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxKey is the most bytes of a key. Fully escaped it is a token of 765 bytes,
// far below the 4,096 bytes of a NATS control line.
const maxKey = 255

const upperHex = "0123456789ABCDEF"

// plain reports whether a byte of a key stands for itself in a token. Only what
// has no meaning in any NATS subject does.
func plain(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '-' || b == '_'
}

// Token returns the subject token of a key: every byte outside A-Z a-z 0-9 - _
// becomes %XX with upper-case hex. A key has exactly one token, so that it has
// exactly one partition.
//
// A key is 1 to 255 bytes of UTF-8 without U+0000. The error names the rule
// that key breaks, and the byte offset in the key.
func Token(key string) (string, error) {
	if err := checkKey(key); err != nil {
		return "", err
	}
	escapes := 0
	for i := range len(key) {
		if !plain(key[i]) {
			escapes++
		}
	}
	if escapes == 0 {
		return key, nil
	}
	token := make([]byte, 0, len(key)+2*escapes)
	for i := range len(key) {
		if b := key[i]; plain(b) {
			token = append(token, b)
		} else {
			token = append(token, '%', upperHex[b>>4], upperHex[b&15])
		}
	}
	return string(token), nil
}

// Key returns the key of a subject token. It accepts only what Token returns: a
// second spelling of a key would hash to another partition, and two owners
// would write one document.
//
// The error names the rule that token breaks, and the byte offset in the token
// or in the decoded key.
func Key(token string) (string, error) {
	first := strings.IndexByte(token, '%')
	if first < 0 {
		first = len(token)
	}
	for i := range first {
		if !plain(token[i]) {
			return "", unescaped(token, i)
		}
	}
	if first == len(token) {
		return token, checkLength(token)
	}
	key := make([]byte, 0, len(token))
	key = append(key, token[:first]...)
	for i := first; i < len(token); {
		if token[i] != '%' {
			if !plain(token[i]) {
				return "", unescaped(token, i)
			}
			key = append(key, token[i])
			i++
			continue
		}
		b, err := unescape(token, i)
		if err != nil {
			return "", err
		}
		key = append(key, b)
		i += 3
	}
	if err := checkKey(string(key)); err != nil {
		return "", err
	}
	return string(key), nil
}

func unescaped(token string, i int) error {
	return fmt.Errorf("the key's token is not canonical: byte %d, %q, must be written %%%02X", i, token[i:i+1], token[i])
}

// unescape decodes the escape at offset i.
func unescape(token string, i int) (byte, error) {
	if len(token) < i+3 {
		return 0, fmt.Errorf("the key's token is not canonical: the escape at byte %d, %q, is cut short", i, token[i:])
	}
	hi := strings.IndexByte(upperHex, token[i+1])
	lo := strings.IndexByte(upperHex, token[i+2])
	if hi < 0 || lo < 0 {
		return 0, fmt.Errorf("the key's token is not canonical: the escape at byte %d, %q, is not %% and two digits of 0-9 A-F", i, token[i:i+3])
	}
	b := byte(hi<<4 | lo)
	if plain(b) {
		return 0, fmt.Errorf("the key's token is not canonical: the escape at byte %d, %q, must be written %q", i, token[i:i+3], string(rune(b)))
	}
	return b, nil
}

// checkLength is all that can be wrong with plain bytes.
func checkLength(key string) error {
	switch {
	case key == "":
		return errors.New("the key is empty; it must have 1 to 255 bytes")
	case len(key) > maxKey:
		return fmt.Errorf("the key has %d bytes; it must end at byte offset %d", len(key), maxKey)
	}
	return nil
}

func checkKey(key string) error {
	if err := checkLength(key); err != nil {
		return err
	}
	if i := strings.IndexByte(key, 0); i >= 0 {
		return fmt.Errorf("the key has U+0000 at byte offset %d; databases cannot store it", i)
	}
	if !utf8.ValidString(key) {
		return fmt.Errorf("the key is not valid UTF-8 at byte offset %d", invalidUTF8([]byte(key)))
	}
	return nil
}

// invalidUTF8 returns the offset of the first byte that does not belong to
// valid UTF-8, or -1.
func invalidUTF8(text []byte) int {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

// PartitionOf returns the partition, from 0, that JetStream's partition(n,1)
// gives a token: FNV-1a 32 of its bytes modulo the number of partitions
// (nats-server, server/subject_transform.go, getHashPartition). Written out here
// because hash/fnv would allocate for every message.
func PartitionOf(token string, partitions int) int {
	if partitions <= 1 {
		return 0
	}
	h := uint32(2166136261) // FNV offset basis
	for i := range len(token) {
		h = (h ^ uint32(token[i])) * 16777619 // FNV prime
	}
	return int(h % uint32(partitions))
}

// Layout says where a stream keeps the fragments of a key.
type Layout struct {
	// Root is what subjects begin with: one or more tokens, "fragments" say.
	Root string
	// Partitions is the number of partitions, from 1. With one partition there
	// is no transform: a message is stored on the subject it is published to.
	Partitions int
}

// Subject returns the subject to publish a fragment to.
func (l Layout) Subject(token string) string { return l.Root + "." + token }

// Stored returns the subject that the stream stores a fragment under.
func (l Layout) Stored(partition int, token string) string {
	if l.Partitions <= 1 {
		return l.Subject(token)
	}
	return l.Root + "." + strconv.Itoa(partition) + "." + token
}

// Filter returns the filter subject of a partition's consumer; "" when there is
// only one partition, which a consumer reads fastest without a filter.
func (l Layout) Filter(partition int) string {
	if l.Partitions <= 1 {
		return ""
	}
	return l.Stored(partition, "*")
}

// Parse takes a stored subject apart. It does not check that the token is
// canonical (see Key) nor that it belongs to the partition (see PartitionOf).
// The error names the subject and the form it should have.
func (l Layout) Parse(subject string) (partition int, token string, err error) {
	rest, ok := strings.CutPrefix(subject, l.Root)
	if !ok || rest == "" || rest[0] != '.' {
		return 0, "", l.strange(subject)
	}
	token = rest[1:]
	if l.Partitions > 1 {
		var digits string
		digits, token, ok = strings.Cut(token, ".")
		partition = index(digits, l.Partitions)
		if !ok || partition < 0 {
			return 0, "", l.strange(subject)
		}
	}
	if token == "" || strings.IndexByte(token, '.') >= 0 {
		return 0, "", l.strange(subject)
	}
	return partition, token, nil
}

// index reads a number below limit as strconv.Itoa writes it, or returns -1.
func index(digits string, limit int) int {
	if digits == "" || digits[0] == '0' && len(digits) > 1 {
		return -1
	}
	n := 0
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return -1
		}
		if n = 10*n + int(digits[i]-'0'); n >= limit {
			return -1
		}
	}
	return n
}

func (l Layout) strange(subject string) error {
	form := l.Subject("<key>")
	if l.Partitions > 1 {
		form = fmt.Sprintf("%s.<0 to %d>.<key>", l.Root, l.Partitions-1)
	}
	return fmt.Errorf("subject %q is not of the form %s", subject, form)
}
