package batcher

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var rewrite = flag.Bool("rewrite", false, "record what the scripts in testdata print now")

// TestScripts runs the scripts in testdata and compares what they print with
// what is recorded below each command. See testdata/README.md.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			recorded, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(recorded))
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != string(recorded) {
				t.Errorf("%s: prints now\n%s\n(go test ./batcher -run TestScripts -args -rewrite records it)", file, got)
			}
		})
	}
}

// script is a Batcher with a clock that only `wait` moves.
type script struct {
	b     *Batcher
	clock time.Duration
}

var scriptStart = time.Unix(0, 0)

func (s *script) now() time.Time { return scriptStart.Add(s.clock) }

// runScript returns the script with what its commands print now.
func runScript(t *testing.T, text string) string {
	var out strings.Builder
	s := &script{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if strings.HasPrefix(line, "  ") {
			continue // recorded before
		}
		fmt.Fprintln(&out, line)
		if line == "" || line[0] == '#' {
			continue
		}
		printed, err := s.run(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for p := range strings.Lines(printed) {
			fmt.Fprintln(&out, "  "+strings.TrimRight(p, "\n"))
		}
	}
	return out.String()
}

func (s *script) run(line string) (string, error) {
	words, err := split(line)
	if err != nil {
		return "", err
	}
	c := command{words: words[1:]}
	var printed string
	switch words[0] {
	case "limits":
		s.b = New(Limits{MaxAge: c.duration("age"), ChunkBytes: c.number("chunk", 1<<20), MaxDistance: uint64(c.number("distance", 0))})
	case "wait":
		s.clock += c.duration("")
	case "add":
		f := Fragment{Key: c.word(), Seq: uint64(c.number("", 0)), Data: []byte(c.word())}
		f.Final = c.flag("final")
		if c.flag("hole") {
			f.Hole = &Reason{Code: "hole"}
		}
		s.b.Add(s.now(), f)
	case "passed":
		s.b.Passed(uint64(c.number("", 0)))
	case "take":
		l := Limit{Documents: c.number("documents", 1000), Bytes: c.number("bytes", 1<<20)}
		printed = describe(s.b.Take(s.now(), l))
	case "settle":
		s.b.Settle(c.word(), uint64(c.number("", 0)))
	case "relieve":
		s.b.Relieve(int64(c.number("", 0)))
	case "hurry":
		s.b.Hurry()
	case "drain":
		s.b.Drain()
	case "deadline":
		printed = "nothing waits to become due"
		if at, ok := s.b.Deadline(); ok {
			printed = "at " + at.Sub(scriptStart).String()
		}
	case "oldest":
		printed = "nothing waits"
		if seq, ok := s.b.Oldest(); ok {
			printed = strconv.FormatUint(seq, 10)
		}
	case "held":
		printed = fmt.Sprintf("%d documents, oldest %v", s.b.Documents(), s.b.Age(s.now()))
	default:
		return "", fmt.Errorf("unknown command")
	}
	if c.err == nil && len(c.words) > 0 {
		c.err = fmt.Errorf("cannot read %q", c.words)
	}
	return printed, c.err
}

// describe prints groups as `key first..last "text"`, one a line.
func describe(groups []Group) string {
	if len(groups) == 0 {
		return "nothing"
	}
	var out strings.Builder
	for _, g := range groups {
		var text []byte
		marks := ""
		for i := range g.Fragments {
			text = append(text, g.Fragments[i].Text()...)
			if g.Fragments[i].Hole != nil {
				marks += fmt.Sprintf(" hole %d", g.Fragments[i].Seq)
			}
			if g.Fragments[i].Final {
				marks += " final"
			}
		}
		fmt.Fprintf(&out, "%s %d..%d %q%s\n", g.Key, g.First(), g.Last(), text, marks)
	}
	return out.String()
}

// command reads the words of a command; its first error stays.
type command struct {
	words []string
	err   error
}

func (c *command) word() string {
	if len(c.words) == 0 {
		c.err = fmt.Errorf("too few words")
		return ""
	}
	w := c.words[0]
	c.words = c.words[1:]
	return w
}

// option takes the word name=value; without a name, the next word.
func (c *command) option(name string) string {
	if name == "" {
		return c.word()
	}
	for i, w := range c.words {
		if value, ok := strings.CutPrefix(w, name+"="); ok {
			c.words = append(c.words[:i:i], c.words[i+1:]...)
			return value
		}
	}
	return ""
}

func (c *command) number(name string, otherwise int) int {
	w := c.option(name)
	if w == "" {
		return otherwise
	}
	n, err := strconv.Atoi(w)
	if err != nil {
		c.err = err
	}
	return n
}

func (c *command) duration(name string) time.Duration {
	d, err := time.ParseDuration(c.option(name))
	if err != nil {
		c.err = err
	}
	return d
}

func (c *command) flag(name string) bool {
	if len(c.words) == 0 || c.words[0] != name {
		return false
	}
	c.word()
	return true
}

// split splits a line at blanks; a word in quotes is a Go string.
func split(line string) ([]string, error) {
	var words []string
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		if line[0] != '"' {
			word, rest, _ := strings.Cut(line, " ")
			words, line = append(words, word), rest
			continue
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, err
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		words, line = append(words, word), line[len(quoted):]
	}
	return words, nil
}
