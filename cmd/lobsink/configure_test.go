package main

import (
	"strings"
	"testing"
)

// TestInitialFile: what config init writes is read back as it was meant, and so is
// every line of it that is commented out.
func TestInitialFile(t *testing.T) {
	for _, store := range []string{"sqlite:./x.db", "postgres://a:b@h/d"} {
		for _, small := range []bool{false, true} {
			cfg := defaultConfig()
			cfg.Store, cfg.NATS = store, "nats://u:p@h:4222"
			text := initialFile(cfg, small)
			cfg.complete()

			got := defaultConfig()
			if _, faults := loadYAML(&got, []byte(text), nil); faults != nil {
				t.Fatalf("%v in\n%s", faults, text)
			}
			if got.complete(); got != cfg {
				t.Errorf("%+v\nwant %+v", got, cfg)
			}

			var lines []string
			for line := range strings.Lines(text) {
				if line, ok := strings.CutPrefix(line, "#"); ok && !strings.HasPrefix(line, " ") {
					_, value, _ := strings.Cut(strings.TrimSpace(line), ":")
					if value == "" {
						continue // no default to write down
					}
					lines = append(lines, line)
				}
			}
			got = defaultConfig()
			got.Store, got.NATS = cfg.Store, cfg.NATS
			if _, faults := loadYAML(&got, []byte(strings.Join(lines, "")), nil); faults != nil {
				t.Fatalf("%v in the comments of\n%s", faults, text)
			}
			if got.complete(); got != cfg {
				t.Errorf("%+v\nwant %+v", got, cfg)
			}
			if !small && len(lines) < len(settings)/2 {
				t.Errorf("%d of %d settings have a line:\n%s", len(lines), len(settings), text)
			}
		}
	}
}
