package lobtest

import (
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
)

func TestMemory(t *testing.T) {
	for _, l := range []struct {
		name   string
		limits lobwriter.Limits
	}{
		{"large limits", lobwriter.Limits{Documents: 1024, Bytes: 4 << 20, ChunkBytes: 32767}},
		{"small limits, UTF-16", lobwriter.Limits{Documents: 4, Bytes: 1 << 10, ChunkBytes: 16, Unit: lobwriter.UTF16}},
	} {
		t.Run(l.name, func(t *testing.T) {
			Test(t, func(*testing.T) Fixture {
				m := NewMemory(l.limits)
				return Fixture{
					Store: m, Reader: m,
					Second: func(testing.TB) lobwriter.Store { return m },
					Sabotage: func(_ testing.TB, key string) {
						m.tables.documents[key].text[0] ^= 1
					},
				}
			})
		})
	}
}
