package lobwriter_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/lobsink/lobsink/lobwriter"
)

// cutChecked cuts fragments and checks what holds for all chunks: joined they are the
// text, each is valid UTF-8, within the limit, and not empty.
func cutChecked(t *testing.T, limit int, fragments ...string) [][]byte {
	t.Helper()
	text := strings.Join(fragments, "")
	chunks := lobwriter.Cut(func(yield func([]byte) bool) {
		for _, f := range fragments {
			if !yield([]byte(f)) {
				return
			}
		}
	}, len(text), limit)
	if got := bytes.Join(chunks, nil); string(got) != text {
		t.Errorf("limit %d: the chunks of %.60q are together %.60q", limit, text, got)
	}
	for i, c := range chunks {
		if len(c) == 0 || len(c) > limit || !utf8.Valid(c) {
			t.Errorf("limit %d: chunk %d of %.60q is %.60q", limit, i, text, c)
		}
	}
	return chunks
}

// TestCount/O1: a writer took the length in characters as the amount of
// WRITEAPPEND and lost the tail of every text with an emoji.
func TestCount(t *testing.T) {
	for _, c := range []struct {
		text         string
		runes, utf16 int64
	}{
		{"", 0, 0},
		{"a", 1, 1},
		{"é", 1, 1},
		{"€", 1, 1},
		{"😊", 1, 2},
		{"a🎵b", 3, 4},
		{strings.Repeat("😊", 10_000), 10_000, 20_000},
		{"\ufffd\uffff", 2, 2},     // the last of the basic plane
		{"\U00010000", 1, 2},       // the first outside
		{"\U0010ffff", 1, 2},       // the last of all
		{"<r>😊</r>\r\n\t", 11, 12}, // as it comes
	} {
		t.Run(fmt.Sprintf("O1/%.12q", c.text), func(t *testing.T) {
			if got := lobwriter.Runes.Count([]byte(c.text)); got != c.runes {
				t.Errorf("%d code points, want %d", got, c.runes)
			}
			if got := lobwriter.UTF16.Count([]byte(c.text)); got != c.utf16 {
				t.Errorf("%d UTF-16 units, want %d", got, c.utf16)
			}
		})
	}
}

// TestCyrillic/O2: text grew by a blank for each two-byte letter when it was
// written in many pieces.
func TestCyrillic(t *testing.T) {
	fragments := slices.Repeat([]string{"dddЩЩЩ"}, 1000)
	for _, limit := range []int{7, 64, 32 << 10} {
		t.Run(fmt.Sprintf("O2/limit %d", limit), func(t *testing.T) {
			var units int64
			for _, c := range cutChecked(t, limit, fragments...) {
				units += lobwriter.UTF16.Count(c)
			}
			if units != 6000 {
				t.Errorf("%d UTF-16 units, want 6000", units)
			}
		})
	}
}

// TestChunkBorders/O4: pieces cut by bytes destroyed the character on the
// border.
func TestChunkBorders(t *testing.T) {
	for _, char := range []string{"é", "€", "𝄞"} {
		for limit := 4; limit <= 16; limit++ {
			t.Run(fmt.Sprintf("O4/%s limit %d", char, limit), func(t *testing.T) {
				// The border falls before, at every byte within, and behind.
				for before := limit - len(char); before <= limit; before++ {
					head, tail := strings.Repeat("a", before), strings.Repeat("b", 2*limit)
					chunks := cutChecked(t, limit, head+char+tail)
					want := head // the longest prefix that keeps the character whole
					if before+len(char) <= limit {
						want += char
					}
					if string(chunks[0]) != want {
						t.Errorf("the first chunk is %q, want %q", chunks[0], want)
					}
					// Only the pieces together have to be valid UTF-8.
					whole := head + char + tail
					cutChecked(t, limit, whole[:before+1], whole[before+1:])
				}
			})
		}
	}
}

// TestWholeChunks/O13: a loop ran once too often when the length was a multiple
// of the chunk, and appended nothing.
func TestWholeChunks(t *testing.T) {
	const limit = 32767
	for _, c := range []struct{ bytes, chunks int }{
		{0, 0}, {1, 1}, {limit - 1, 1}, {limit, 1}, {limit + 1, 2}, {2 * limit, 2}, {3 * limit, 3},
	} {
		t.Run(fmt.Sprintf("O13/%d bytes", c.bytes), func(t *testing.T) {
			text := strings.Repeat("x", c.bytes)
			if got := len(cutChecked(t, limit, text)); got != c.chunks {
				t.Errorf("%d chunks, want %d", got, c.chunks)
			}
			// The borders of fragments do not matter, empty ones neither.
			third := c.bytes / 3
			if got := len(cutChecked(t, limit, "", text[:third], "", text[third:], "")); got != c.chunks {
				t.Errorf("in fragments: %d chunks, want %d", got, c.chunks)
			}
		})
	}
}

func TestCutOfNothing(t *testing.T) {
	if chunks := cutChecked(t, 4); chunks != nil {
		t.Errorf("no fragments: %q", chunks)
	}
	if chunks := cutChecked(t, 4, "", ""); chunks != nil {
		t.Errorf("empty fragments: %q", chunks)
	}
}

// TestWrongSize: a size that is not the sum loses nothing.
func TestWrongSize(t *testing.T) {
	for _, size := range []int{0, 1, 1000} {
		for _, text := range []string{"", "0123456789"} {
			chunks := lobwriter.Cut(slices.Values([][]byte{[]byte(text)}), size, 4)
			if got := string(bytes.Join(chunks, nil)); got != text {
				t.Errorf("size %d: %q, want %q", size, got, text)
			}
			if text == "" && len(chunks) > 0 {
				t.Errorf("size %d: an empty chunk", size)
			}
		}
	}
}

// TestChunksAreApart: what is appended to a chunk does not run into the next,
// and chunks are no part of the fragments.
func TestChunksAreApart(t *testing.T) {
	fragment := []byte("aaaabbbb")
	chunks := lobwriter.Cut(slices.Values([][]byte{fragment}), len(fragment), 4)
	fragment[0] = 'X'
	_ = append(chunks[0], 'Y')
	if got := string(bytes.Join(chunks, nil)); got != "aaaabbbb" {
		t.Errorf("the text became %q", got)
	}
}

func TestBorder(t *testing.T) {
	for _, c := range []struct {
		text        string
		limit, want int
	}{
		{"", 4, 0},
		{"abc", 4, 3},
		{"abcd", 4, 4},
		{"abcde", 4, 4},
		{"abc€", 4, 3},
		{"abc€", 5, 3},
		{"abc€", 6, 6},
		{"😊😊", 4, 4},
		{"😊😊", 7, 4},
		{"e\u0301x", 2, 1},                 // an accent is a character of its own
		{"\x80\x80\x80\x80\x80\x80", 5, 5}, // no text: cut anywhere
		{"a\x80\x80\x80\x80\x80", 5, 5},
	} {
		if got := lobwriter.Border([]byte(c.text), c.limit); got != c.want {
			t.Errorf("Border(%q, %d) = %d, want %d", c.text, c.limit, got, c.want)
		}
	}
}

// FuzzCut: the chunks are the text, whatever it is and however it was published.
func FuzzCut(f *testing.F) {
	f.Add("", uint8(0), uint16(0))
	f.Add("<r>😊</r>", uint8(3), uint16(4))
	f.Add("dddЩЩЩdddЩЩЩ", uint8(1), uint16(7))
	f.Add("€€€€€", uint8(7), uint16(5))
	f.Fuzz(func(t *testing.T, text string, piece uint8, limit uint16) {
		if !utf8.ValidString(text) {
			t.Skip("is a hole, and no text")
		}
		var fragments []string
		for rest := text; rest != ""; {
			n := min(int(piece)+1, len(rest))
			fragments, rest = append(fragments, rest[:n]), rest[n:]
		}
		var runes, units int64
		for _, c := range cutChecked(t, max(int(limit), utf8.UTFMax), fragments...) {
			runes += lobwriter.Runes.Count(c)
			units += lobwriter.UTF16.Count(c)
		}
		if want := int64(len([]rune(text))); runes != want {
			t.Errorf("%d code points, want %d", runes, want)
		}
		if want := int64(len(utf16.Encode([]rune(text)))); units != want {
			t.Errorf("%d UTF-16 units, want %d", units, want)
		}
	})
}
