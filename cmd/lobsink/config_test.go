package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/lobsink/lobsink/internal/telemetry"
)

// TestDefaults: what the documentation says of a program without settings.
func TestDefaults(t *testing.T) {
	c := defaultConfig()
	c.complete()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	want := Config{
		NATSListen: "127.0.0.1:4222", Store: "sqlite:lobsink-data/lobsink.db", Stream: "FRAGMENTS", Root: "fragments",
		MaxAge: time.Second, ChunkBytes: 32767, Memory: 256 << 20, MaxFragmentBytes: 8 << 20,
		Lease: 10 * time.Second, Renew: 3 * time.Second, FlushTimeout: 8 * time.Second, DrainTimeout: 30 * time.Second,
		HTTP: "127.0.0.1:7070", DataDir: "./lobsink-data", LogFormat: telemetry.Auto,
	}
	if c != want {
		t.Errorf("%+v\nwant %+v", c, want)
	}
	if !c.Embedded() || c.NATSURL() != "nats://127.0.0.1:4222" || c.DefaultPartitions() != 1 {
		t.Errorf("embedded %t, NATS at %s, %d partitions", c.Embedded(), c.NATSURL(), c.DefaultPartitions())
	}
	c.Store = "postgres://db/docs"
	if n := c.DefaultPartitions(); n != 8 {
		t.Errorf("%d partitions with PostgreSQL", n)
	}
}

// TestDerived: a short lease brings its own deadlines.
func TestDerived(t *testing.T) {
	c := defaultConfig()
	c.Lease = time.Second
	c.HTTP = "off"
	c.complete()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.Renew != 300*time.Millisecond || c.FlushTimeout != 800*time.Millisecond || c.HTTP != "" {
		t.Errorf("renew %s, flush_timeout %s, http %q", c.Renew, c.FlushTimeout, c.HTTP)
	}
}

// TestValidate has one fault per case, and what its sentence must contain.
func TestValidate(t *testing.T) {
	for _, test := range []struct {
		name  string
		spoil func(*Config)
		want  []string
	}{
		{"memory", func(c *Config) { c.Partitions, c.Memory = 16, 257<<20 }, []string{"memory is 257MiB", "16 partitions", "8MiB", "at least 344MiB"}},
		{"chunk too small", func(c *Config) { c.ChunkBytes = 3 }, []string{"chunk_bytes is 3", "4 to 32767"}},
		{"chunk too large", func(c *Config) { c.ChunkBytes = 32768 }, []string{"chunk_bytes is 32768", "4 to 32767"}},
		{"fragment too large", func(c *Config) { c.MaxFragmentBytes = 64<<20 + 1 }, []string{"max_fragment_bytes is 67108865"}},
		{"fragment of nothing", func(c *Config) { c.MaxFragmentBytes = 0 }, []string{"max_fragment_bytes is 0"}},
		{"lease", func(c *Config) { c.Lease, c.Renew, c.FlushTimeout = 999*time.Millisecond, 0, 0 }, []string{"lease is 999ms", "at least 1s"}},
		{"flush timeout", func(c *Config) { c.FlushTimeout = c.Lease }, []string{"flush_timeout is 10s", "lease of 10s"}},
		{"no time to flush", func(c *Config) { c.FlushTimeout = time.Millisecond }, []string{"flush_timeout is 1ms"}},
		{"renew", func(c *Config) { c.Renew = 6 * time.Second }, []string{"renew is 6s", "lower renew to 3s"}},
		{"stream", func(c *Config) { c.Stream = "A.B" }, []string{`stream is "A.B"`}},
		{"no stream", func(c *Config) { c.Stream = "" }, []string{`stream is ""`}},
		{"root", func(c *Config) { c.Root = "a..b" }, []string{`root is "a..b"`}},
		{"root of NATS", func(c *Config) { c.Root = "$JS" }, []string{`root is "$JS"`}},
		{"root with wildcard", func(c *Config) { c.Root = "a.*" }, []string{`root is "a.*"`}},
		{"nats_listen without host", func(c *Config) { c.NATSListen = ":4222" }, []string{`nats_listen is ":4222"`, "HOST:PORT"}},
		{"nats_listen on any port", func(c *Config) { c.NATSListen = "127.0.0.1:0" }, []string{`nats_listen is "127.0.0.1:0"`}},
		{"http", func(c *Config) { c.HTTP = "7070" }, []string{`http is "7070"`, "HOST:PORT"}},
		{"http port", func(c *Config) { c.HTTP = ":70000" }, []string{`http is ":70000"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := defaultConfig()
			c.complete()
			test.spoil(&c)
			err := c.Validate()
			if err == nil {
				t.Fatal("no fault")
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one fault: %v", err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q is not in %q", part, err)
				}
			}
		})
	}
}

// TestValidateTellsAll: one run shows everything that has to be corrected.
func TestValidateTellsAll(t *testing.T) {
	c := defaultConfig()
	c.complete()
	c.Stream, c.Root, c.HTTP, c.ChunkBytes, c.FlushTimeout = "", "", "x", 0, time.Minute
	if n := strings.Count(fmt.Sprint(c.Validate()), "\n") + 1; n != 5 {
		t.Errorf("%d faults, want 5: %v", n, c.Validate())
	}
}

// TestMemoryNeeded: exactly what is named as needed is enough.
func TestMemoryNeeded(t *testing.T) {
	c := defaultConfig()
	c.Partitions = 16
	c.complete()
	c.Memory = 344 << 20
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	c.Memory -= 1 << 20
	if c.Validate() == nil {
		t.Error("a byte less is enough too")
	}
}

// TestSettings: every setting has a flag, a variable and a default that it takes
// itself.
func TestSettings(t *testing.T) {
	for i := range settings {
		s := &settings[i]
		c := defaultConfig()
		v := s.value(&c)
		if text := v.String(); text != "" {
			if err := v.Set(text); err != nil {
				t.Errorf("%s does not take its own default: %v", s.key, err)
			}
		}
		if c != defaultConfig() {
			t.Errorf("%s has another default after taking it", s.key)
		}
		if strings.ToLower(s.key) != s.key || strings.Contains(s.key, "-") {
			t.Errorf("key %s", s.key)
		}
	}
}

// TestLayers: each layer wins over those before it, for a setting of each kind.
func TestLayers(t *testing.T) {
	a := &app{env: newEnvironment([]string{"LOBSINK_MAX_AGE=2s", "LOBSINK_MEMORY=512MiB", "LOBSINK_STREAM="}), flags: newSettingFlags()}
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	a.flags.add(set, "memory", "partitions", "stream")
	if err := set.Parse([]string{"--memory", "1GiB"}); err != nil {
		t.Fatal(err)
	}
	c, err := a.load()
	if err != nil {
		t.Fatal(err)
	}
	if c.MaxAge != 2*time.Second || c.Memory != 1<<30 || c.Partitions != 0 || c.Stream != "FRAGMENTS" {
		t.Errorf("%+v", c)
	}
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{"0": 0, "0s": 0, "250ms": 250 * time.Millisecond, "1m30s": 90 * time.Second} {
		var d duration
		if err := d.Set(text); err != nil || time.Duration(d) != want {
			t.Errorf("%s: %s, %v", text, time.Duration(d), err)
		}
	}
	for _, text := range []string{"", "10", "-1s", "2 minutes", "1d", "s"} {
		if new(duration).Set(text) == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "32767": 32767, "64KiB": 64 << 10, "64kib": 64 << 10, "1 GiB": 1 << 30, "8MB": 8_000_000, "1.5KiB": 1536} {
		var s size
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("%s: %d, %v", text, s, err)
		}
		again := size(0)
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%s is written as %s, which is %d", text, s.String(), again)
		}
	}
	for _, text := range []string{"", "many", "-1", "1 fortnight", "8EiB"} {
		if new(size).Set(text) == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

// FuzzFile: no file makes the program panic, or takes a fault for a setting.
func FuzzFile(f *testing.F) {
	for _, seed := range []string{"", "lease: 10s\n", "- a", "a: {b: [c]}", "lease: &x 1\nrenew: *x", "? a\n: b", "'", "\t", "---\n---\n", "<<: {}", "root: |\n x", "x: !!binary a"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		c := defaultConfig()
		keys, faults := loadYAML(&c, content, nil)
		lines := strings.Split(string(content), "\n")
		for _, err := range faults {
			inContext(err, lines)
		}
		for _, key := range keys {
			if findSetting(key) == nil && len(faults) == 0 {
				t.Errorf("unknown key %q is no fault", key)
			}
		}
	})
}

// TestNoHalfLine: context of a fault in a file with the line ends of Windows.
func TestNoHalfLine(t *testing.T) {
	c := defaultConfig()
	content := "lease: 10s\r\n\trenew: soon\r\nrenew: never\r\n"
	_, faults := loadYAML(&c, []byte(content), nil)
	for _, err := range faults {
		if text := inContext(err, strings.Split(content, "\n")); bytes.ContainsRune([]byte(text), '\r') {
			t.Errorf("%q", text)
		}
	}
	if len(faults) == 0 {
		t.Error("no fault")
	}
}
