//go:build cgo

package oracle_test

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
)

// TestMemory/O18: what the driver keeps in C does not grow with the flushes: binds,
// statements, errors.
func TestMemory(t *testing.T) {
	t.Run("O18", func(t *testing.T) {
		const flushes, warm, growth = 50_000, 5_000, 32 << 20
		d := start(t)
		own := lobtest.NewOwner(t, d.store, 1)
		before := 0
		text := strings.Repeat("€", 5000)
		for seq := uint64(1); seq <= flushes; seq++ {
			g := own.Append("k"+strconv.Itoa(int(seq%16)), lobtest.Text(seq, "x"))
			if seq%1000 == 0 { // binds of another size, and an answer that is an error
				own.Flush(t, own.Append("k"+strconv.Itoa(int(seq%16)), lobtest.Text(seq, text+"\x00")))
				g = own.Append(g.Key, lobtest.Text(seq, text))
			}
			if a := own.Flush(t, g).Answers[0]; a.Status != lobwriter.Appended {
				t.Fatalf("flush %d: %v", seq, a.Status)
			}
			if seq == warm {
				before = resident(t)
			}
		}
		if after := resident(t); after-before > growth {
			t.Errorf("%d MiB after %d flushes, %d MiB after %d", before>>20, warm, after>>20, flushes)
		} else {
			t.Logf("%d MiB after %d flushes, %d MiB after %d", before>>20, warm, after>>20, flushes)
		}
	})
}

// resident returns the memory of the process, in Go and in C, in bytes.
func resident(t *testing.T) int {
	t.Helper()
	runtime.GC()
	status, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip("only on Linux: ", err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(status))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}
