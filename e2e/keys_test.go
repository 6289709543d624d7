package e2e

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestKeys: keys are compared byte by byte; every key that a document can have
// comes through, and none shares a document with another (O63, O64).
func TestKeys(t *testing.T) {
	keys := []string{
		"a.b", "a_b", "a b", "a\tb", "a\nb", "*", ">", "~", "%", "a%2Eb", "$JS.API", "'; drop table x; --", `"`, `\`, "/", "..",
		"K1", "K1 ", "k1", "K1\u00a0", " K1", // blank-padded comparison makes some of these one
		"\u00e9", "e\u0301", "E\u0301", // composed and decomposed
		"ss", "\u00df", "\u212a", "K", "k", // case folding makes some of these one
		"i", "\u0131", "I", "\u0130",
		"漢字", "😀", "\u202e", "\ufeff", "\u0001", "\x7f",
		strings.Repeat("k", 255), strings.Repeat("é", 127), "0", "00", "0.0", "NULL", "null",
	}
	databases(t, func(t *testing.T, db *database) {
		b := startBroker(t)
		must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
		js := b.connect()
		s := startSink(t, "--nats", b.url(), "--store", db.url, "--lease", "1s", "--max-age", "20ms")
		want := map[string]string{}
		for round := range 2 {
			for i, key := range keys {
				text := fmt.Sprintf("<k n=\"%d\" round=\"%d\"/>", i, round)
				publish(t, js, "fragments."+token(key), text)
				want[key] += text
			}
		}
		eventually(t, time.Minute, func() error {
			got := db.texts(t)
			for key, text := range want {
				if got[key] != text {
					return fmt.Errorf("document %q is %q, want %q", key, got[key], text)
				}
			}
			if len(got) != len(want) {
				return fmt.Errorf("%d documents of %d keys", len(got), len(want))
			}
			return nil
		})
		for _, key := range keys {
			args := []string{"doc", "cat", "--store", db.url, "--", key}
			if text := must(t, args...); text != want[key] {
				t.Errorf("doc cat %q: %q, want %q", key, text, want[key])
			}
		}
		if s.terminate() != 0 {
			t.Error("no clean end")
		}
		if out, errs, code := call(t, "doc", "verify", "--all", "--store", db.url); code != 0 || !strings.Contains(out, fmt.Sprintf("checked %d, failed 0", len(keys))) {
			t.Errorf("doc verify: exit %d, %s%s", code, out, errs)
		}
		var list struct{ Items []document }
		decode(t, must(t, "doc", "ls", "--limit", "0", "-o", "json", "--store", db.url), &list)
		for i, d := range list.Items {
			if i > 0 && list.Items[i-1].Key >= d.Key {
				t.Errorf("doc ls: %q stands after %q, which is not byte order", d.Key, list.Items[i-1].Key)
			}
		}
		if len(list.Items) != len(keys) {
			t.Errorf("doc ls lists %d documents, want %d", len(list.Items), len(keys))
		}
	})
}

// token is how a producer writes a key into a subject: every byte but A-Z a-z
// 0-9 - _ as %XX.
func token(key string) string {
	var b strings.Builder
	for _, c := range []byte(key) {
		if c == '-' || c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// keyOf is the key of a token.
func keyOf(token string) string {
	key, err := url.PathUnescape(token)
	if err != nil {
		return token
	}
	return key
}
