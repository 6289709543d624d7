package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// settingFlags are the settings that the flags of a command set.
type settingFlags struct {
	config string
	given  map[string]*settingFlag
}

func newSettingFlags() *settingFlags { return &settingFlags{given: map[string]*settingFlag{}} }

// settingFlag is the flag of one setting. It checks its text at once and keeps it
// for load, since flags come last.
type settingFlag struct {
	s    *setting
	text string
	set  bool
}

// Set implements pflag.Value.
func (f *settingFlag) Set(text string) error {
	scratch := defaultConfig()
	f.text, f.set = text, true
	return f.s.value(&scratch).Set(text)
}

// String returns the default, for the help.
func (f *settingFlag) String() string {
	if f.s == nil {
		return "" // pflag asks a zero value
	}
	if f.s.initial != "" {
		return f.s.initial
	}
	c := defaultConfig()
	return f.s.value(&c).String()
}

// Type implements pflag.Value.
func (f *settingFlag) Type() string {
	var c Config
	return f.s.value(&c).Type()
}

// add gives flags to the settings with these keys.
func (f *settingFlags) add(set *pflag.FlagSet, keys ...string) {
	for _, key := range keys {
		s := findSetting(key)
		if f.given[key] == nil {
			f.given[key] = &settingFlag{s: s}
		}
		set.Var(f.given[key], s.flag(), s.help)
	}
}

// customary are the variables in which users of the nats command have settings
// already. The file wins over them.
var customary = map[string]string{
	"nats": "NATS_URL", "nats_creds": "NATS_CREDS", "nats_nkey": "NATS_NKEY",
	"nats_ca": "NATS_CA", "nats_cert": "NATS_CERT", "nats_key": "NATS_KEY",
}

// load returns the configuration: defaults, then the file, the environment and
// the flags. Every fault is reported. Its exit code is 78; flags are checked
// when they are read, and theirs is 64.
func (a *app) load() (*Config, error) {
	c, _, err := a.loadWithOrigins()
	return c, err
}

// loadWithOrigins is load, and says of every setting that has not its default
// where it comes from.
func (a *app) loadWithOrigins() (_ *Config, origins map[string]string, _ error) {
	c := defaultConfig()
	var faults []error
	origins = map[string]string{}
	for i := range settings {
		s := &settings[i]
		if name := customary[s.key]; a.env[name] != "" {
			if err := s.value(&c).Set(a.env[name]); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", name, err))
			}
			origins[s.key] = name
		}
	}
	path := a.flags.config
	if path == "" {
		path = a.env["LOBSINK_CONFIG"]
	}
	a.warnOfVariables()
	if path != "" {
		keys, fileFaults := loadFile(&c, path, a.env)
		faults = append(faults, fileFaults...)
		for _, key := range keys {
			origins[key] = path
		}
	}
	for i := range settings {
		s := &settings[i]
		if text, ok := a.env[s.variable()]; ok {
			if err := s.value(&c).Set(text); err != nil {
				faults = append(faults, fmt.Errorf("%s: %w", s.variable(), err))
			}
			origins[s.key] = s.variable()
		}
		if f := a.flags.given[s.key]; f != nil && f.set {
			if err := s.value(&c).Set(f.text); err != nil {
				faults = append(faults, fmt.Errorf("--%s: %w", s.flag(), err))
			}
			origins[s.key] = "--" + s.flag()
		}
	}
	if len(faults) > 0 {
		return nil, nil, misconfigured("configuration: %w", errors.Join(faults...))
	}
	if c.NATSContext != "" && origins["nats"] == customary["nats"] {
		c.NATS = "" // whoever names a context means it
		delete(origins, "nats")
	}
	if c.isOracle() {
		c.oracle = a.oracleProcess()
		if origins["lease"] == "" {
			c.Lease = oracleLease
		}
	}
	c.complete()
	if err := c.Validate(); err != nil {
		return nil, nil, misconfigured("configuration: %w%s", err, originText(origins))
	}
	c.refused = a.refused
	return &c, origins, nil
}

// given reports whether a flag or the environment sets a setting.
func (a *app) given(key string) bool {
	f := a.flags.given[key]
	return f != nil && f.set || a.env[findSetting(key).variable()] != ""
}

// warnOfVariables tells of variables that look like a misspelt setting. Others
// are left alone: Kubernetes makes LOBSINK_PORT and the like for a service of that
// name.
func (a *app) warnOfVariables() {
	const prefix = "LOBSINK_"
	known := []string{"CONFIG", "ORACLE_PASSWORD", "ORACLE_PASSWORD_FILE"}
	for i := range settings {
		known = append(known, strings.TrimPrefix(settings[i].variable(), prefix))
	}
	for _, name := range slices.Sorted(maps.Keys(a.env)) {
		short, ours := strings.CutPrefix(name, prefix)
		if !ours || slices.Contains(known, short) {
			continue
		}
		if near := nearest(short, known); near != "" {
			fmt.Fprintf(a.stderr, "lobsink: warning: nothing reads %s; did you mean %s?\n", name, prefix+near)
		}
	}
}

// originText says where the settings come from that are not defaults: a fault
// between two of them may be of two layers.
func originText(origins map[string]string) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(origins)) {
		parts = append(parts, key+" by "+origins[key])
	}
	if parts == nil {
		return ""
	}
	return "\n(set here: " + strings.Join(parts, ", ") + ")"
}
