package e2e

import (
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"
)

// TestVerifyStream: a changed byte, a lost, an extra and a swapped chunk are each
// found, with their place, also where the row says what the damaged text is; text
// nodes of any size are equal (O60).
func TestVerifyStream(t *testing.T) {
	databases(t, func(t *testing.T, db *database) {
		b := startBroker(t)
		must(t, "setup", "--nats", b.url(), "--store", db.url, "--partitions", db.partitions())
		js := b.connect()
		sink := startSink(t, "--nats", b.url(), "--store", db.url, "--max-age", "20ms")
		const chunk = 1000
		var seqs []uint64
		var text strings.Builder
		for i := range 10 {
			part := strings.Repeat(string(rune('A'+i)), chunk)
			text.WriteString(part)
			seqs = append(seqs, publish(t, js, "fragments.k", part))
		}
		publish(t, js, "fragments.empty", "")
		for range 12 {
			publish(t, js, "fragments.node", strings.Repeat("é", 500_000))
		}
		publish(t, js, "fragments.refused", "<a>")
		publish(t, js, "fragments.refused", "\xff")
		publish(t, js, "fragments.refused", "</a>", "Lobsink-Final", "true")
		publish(t, js, "fragments.refused", "<late/>")
		db.stored(t, readTruth(t, js, streamName), time.Minute)
		command := func(args ...string) []string { return append(args, "--nats", b.url(), "--store", db.url) }
		if out := must(t, command("doc", "verify", "--all", "--stream")...); out != "checked 4, failed 0\n" {
			t.Errorf("verify says:\n%s", out)
		}
		sink.terminate()

		of := "document = (select id from lobsink_documents where doc_key = 'k')"
		whole := text.String()
		for _, damage := range []struct {
			name   string
			query  []string
			text   string
			offset int
			seq    uint64
		}{
			{"changed byte", []string{"update lobsink_chunks set body = substr(body, 1, 499) || 'x' || substr(body, 501) where n = 3 and " + of},
				whole[:2499] + "x" + whole[2500:], 2499, seqs[2]},
			{"lost chunk", []string{"delete from lobsink_chunks where n = 4 and " + of},
				whole[:3000] + whole[4000:], 3000, seqs[3]},
			{"lost end", []string{"delete from lobsink_chunks where n = 10 and " + of},
				whole[:9000], 9000, seqs[9]},
			{"extra chunk", []string{"insert into lobsink_chunks (document, generation, n, body) select document, generation, 11, 'more' from lobsink_chunks where n = 1 and " + of},
				whole + "more", 10000, seqs[9]},
			{"swapped chunks", []string{
				"update lobsink_chunks set n = -n where n in (5, 6) and " + of,
				"update lobsink_chunks set n = 11 + n where n in (-5, -6) and " + of},
				whole[:4000] + whole[5000:6000] + whole[4000:5000] + whole[6000:], 4000, seqs[4]},
		} {
			t.Run(damage.name, func(t *testing.T) {
				must(t, command("replay", "--key", "k", "--chunk-bytes", fmt.Sprint(chunk))...)
				for _, q := range damage.query {
					if n := db.change(t, q); n == 0 {
						t.Fatal("nothing was damaged")
					}
				}
				if _, _, code := call(t, command("doc", "verify", "k")...); code != 1 {
					t.Errorf("verify without the stream: exit code %d", code)
				}
				crc := crc32.Checksum([]byte(damage.text), crc32.MakeTable(crc32.Castagnoli))
				db.change(t, fmt.Sprintf("update lobsink_documents set bytes = %d, crc = %d where doc_key = 'k'", len(damage.text), crc))
				must(t, command("doc", "verify", "k")...)
				out, _, code := call(t, command("doc", "verify", "--since", "1h", "--stream", "-o", "json")...)
				var list struct {
					Items []struct {
						Key, Stream string
						OK          bool
						Offset      *int
						Sequence    *uint64
					}
					Checked, Failed int
				}
				decode(t, out, &list)
				if code != 1 || list.Checked != 4 || list.Failed != 1 {
					t.Errorf("exit code %d:\n%s", code, out)
				}
				for _, item := range list.Items {
					if item.Key != "k" {
						continue
					}
					if item.OK || item.Stream != "differs" || item.Offset == nil || *item.Offset != damage.offset || *item.Sequence != damage.seq {
						t.Errorf("want offset %d, sequence %d:\n%s", damage.offset, damage.seq, out)
					}
				}
			})
		}
		must(t, command("replay", "--key", "k")...)
		must(t, command("doc", "verify", "k", "--stream")...)

		s, err := js.Stream(t.Context(), streamName)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteMsg(t.Context(), seqs[0]); err != nil {
			t.Fatal(err)
		}
		if out, _, code := call(t, command("doc", "verify", "k", "--stream")...); code != 2 || !strings.Contains(out, "no longer has its beginning") {
			t.Errorf("the stream has lost the beginning: exit code %d:\n%s", code, out)
		}
	})
}
