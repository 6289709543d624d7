//go:build cgo

package realtest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/oracle"
)

// TestFirstInstallation: the scripts run twice, nothing is invalid, and the compiler
// with all its warnings on finds no error.
func TestFirstInstallation(t *testing.T) {
	if err := admin(func(ctx context.Context, a *oracle.Admin) error {
		if err := a.Exec(ctx, "ALTER SESSION SET PLSQL_WARNINGS = 'ENABLE:ALL'"); err != nil {
			return err
		}
		for _, unit := range []string{"ALTER PACKAGE " + prefix + "v1 COMPILE", "ALTER PACKAGE " + prefix + "v1 COMPILE BODY"} {
			if err := a.Exec(ctx, unit); err != nil {
				return err
			}
		}
		wrong, err := a.CompileErrors(ctx)
		if len(wrong) > 0 {
			return fmt.Errorf("%v", wrong)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	if err := admin(func(ctx context.Context, a *oracle.Admin) error {
		from, to, err := a.Setup(ctx)
		if from != to {
			return fmt.Errorf("the second installation leads from %d to %d", from, to)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// TestFirstBinds: the question on which everything depends: RAW elements of up to
// 32,767 bytes in a table, and 1,024 of them.
func TestFirstBinds(t *testing.T) {
	s, r := fixture(t)
	own := lobtest.NewOwner(t, s, 1)
	full := strings.Repeat("x", 32767)
	seq := uint64(0)
	for _, c := range []struct {
		name string
		text func(i int) string
		n    int
	}{
		{"none", nil, 0},
		{"one of 32,767 bytes", func(int) string { return full }, 1},
		{"two", func(int) string { return full }, 2},
		{"128", func(int) string { return full }, 128},
		{"1,024 of a byte", func(int) string { return "x" }, 1024},
		{"one long among short ones", func(i int) string { return full[:1+i/1023*32766] }, 1024},
		{"1,024 of none", func(int) string { return "" }, 1024},
	} {
		t.Run(c.name, func(t *testing.T) {
			groups := make([]lobwriter.Group, c.n)
			for i := range groups {
				seq++
				groups[i] = own.Append(fmt.Sprint(c.name, i), lobtest.Text(seq, c.text(i)))
			}
			for i, a := range own.Flush(t, groups...).Answers {
				if a.Status != lobwriter.Appended {
					t.Fatalf("group %d: %v %s %s", i, a.Status, a.Code, a.Text)
				}
			}
			for _, i := range []int{0, c.n / 2, c.n - 1} {
				if i >= 0 && i < c.n {
					document(t, r, fmt.Sprint(c.name, i), c.text(i))
				}
			}
		})
	}
	t.Run("one fragment of 8 MiB", func(t *testing.T) {
		text := strings.Repeat(full, 257)[:8<<20]
		own.Flush(t, own.Append("large", lobtest.Text(seq+1, text)))
		lobtest.CheckDocument(t, r, lobwriter.UTF16, "large", text)
	})
}

// TestFirstCorpus: characters that could be replaced, normalised, cut or taken for
// something else on their way through UTL_RAW, PL/SQL, a CLOB in UTF-16, and back;
// each cut at every border that it has.
func TestFirstCorpus(t *testing.T) {
	s, r := fixture(t)
	own := lobtest.NewOwner(t, s, 1)
	seq := uint64(0)
	var control strings.Builder
	for c := rune(1); c < ' '; c++ {
		control.WriteRune(c)
	}
	for i, text := range []string{
		"\uFEFFa", "\uFFFD", "\uFFFE", "\uFFFF", "\uFDD0", "\U0010FFFF", "\U0001FFFE", "😀", "e\u0301", "é", "ﬁ", "\u00A0\u2028\u0085\u200B", "\x7f\u0080\u009f",
		control.String(), "\r\n\r\n", "中文字", "👩‍👩‍👧", "Ω≈ç√∫", "<![CDATA[]]>", "''\"\\", "  blanks  ",
	} {
		for cut := range len(text) + 1 {
			if cut > 0 && cut < len(text) && text[cut]&0xC0 == 0x80 {
				continue // inside a character
			}
			key := fmt.Sprint("c", i, " ", cut)
			for _, part := range []string{text[:cut], text[cut:]} {
				seq++
				if a := own.Flush(t, own.Append(key, lobtest.Text(seq, part))).Answers[0]; a.Status != lobwriter.Appended {
					t.Fatalf("%q: %v %s %s", text, a.Status, a.Code, a.Text)
				}
			}
			document(t, r, key, text)
		}
	}
	// Surrogates on the borders of the pieces that read_body reads.
	for pad := range 4 {
		key, text := fmt.Sprint("pad ", pad), strings.Repeat("x", pad)+strings.Repeat("😀", 40_000)
		seq++
		own.Flush(t, own.Append(key, lobtest.Text(seq, text)))
		document(t, r, key, text)
	}
}

// TestFirstErrors: a document that fails keeps nothing and leaves its neighbours
// alone; an error of the whole call leaves no transaction and no lock.
func TestFirstErrors(t *testing.T) {
	s, r := fixture(t)
	own := lobtest.NewOwner(t, s, 1)
	own.Flush(t, own.Append("a", lobtest.Text(1, "1")), own.Append("b", lobtest.Text(2, "1")), own.Append("c", lobtest.Text(3, "1")))
	wrong := own.Append("b", lobtest.Text(5, "2"))
	wrong.After.Bytes++ // -20814: it grows by something else
	got := own.Flush(t, own.Append("a", lobtest.Text(4, "2")), wrong, own.Append("c", lobtest.Text(6, "2"))).Answers
	if got[0].Status != lobwriter.Appended || got[1].Status != lobwriter.Rejected || got[2].Status != lobwriter.Appended || got[1].Code != "ORA-20814" {
		t.Errorf("answers %+v", got)
	}
	for key, want := range map[string]string{"a": "12", "b": "1", "c": "12"} {
		document(t, r, key, want)
	}
	if f, err := s.Fence(t.Context(), 1); err != nil || f.Checkpoint.Seq != 3 {
		t.Errorf("fence row %+v, %v: the checkpoint must stay", f, err)
	}
	// Somebody else wrote into the CLOB.
	statement(t, "DECLARE b CLOB; BEGIN SELECT body INTO b FROM {}documents WHERE doc_key = 'a' AND slot = 0 FOR UPDATE; DBMS_LOB.WRITEAPPEND(b, 1, '!'); COMMIT; END;")
	if a := own.Flush(t, own.Append("a", lobtest.Text(7, "3"))).Answers[0]; a.Status != lobwriter.Rejected || a.Code != "ORA-20813" {
		t.Errorf("answer %+v", a)
	}
	// A fenced flush holds no lock: another session gets the fence row at once.
	f := own.NewFlush()
	f.Epoch++
	if _, err := s.Flush(t.Context(), f); lobwriter.KindOf(err) != lobwriter.Fenced {
		t.Errorf("%v", err)
	}
	hold(t, 1)()
	// The fence row went back, as with a flashback.
	statement(t, "UPDATE {}fences SET flush = flush - 1 WHERE partition_no = 1")
	var fenced *lobwriter.FencedError
	if _, err := s.Flush(t.Context(), own.NewFlush()); !errors.As(err, &fenced) || fenced.Stored.Flush != own.Number-1 {
		t.Errorf("%v", err)
	}
}
