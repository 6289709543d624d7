package main

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/lobsink/lobsink/internal/telemetry"
)

// setting is one key of the configuration. File, environment and flags all set
// its value from text, so they agree in what they take.
type setting struct {
	// key is its name in the YAML file.
	key string
	// help is one line; a word in back quotes stands for the value.
	help string
	// initial describes a default that follows from other settings.
	initial string
	value   func(*Config) pflag.Value
}

// flag is the setting's name as a flag.
func (s *setting) flag() string { return strings.ReplaceAll(s.key, "_", "-") }

// variable is the setting's name in the environment.
func (s *setting) variable() string { return "LOBSINK_" + strings.ToUpper(s.key) }

// settings are all keys, in the order of the help.
var settings = []setting{
	{"nats", "NATS server `URL`, or several with commas", "embedded, at nats_listen",
		func(c *Config) pflag.Value { return (*natsURL)(&c.NATS) }},
	{"nats_listen", "`address` at which run serves NATS when nats is not set; whoever reaches it may publish", "",
		func(c *Config) pflag.Value { return (*text)(&c.NATSListen) }},
	{"nats_context", "`context` of the nats command that names the server, or its file", "",
		func(c *Config) pflag.Value { return (*text)(&c.NATSContext) }},
	{"nats_creds", "credentials `file` for NATS; it is read again at each connect", "",
		func(c *Config) pflag.Value { return (*text)(&c.NATSCreds) }},
	{"nats_nkey", "`file` with the seed of the NKey for NATS", "",
		func(c *Config) pflag.Value { return (*text)(&c.NATSNKey) }},
	{"nats_ca", "`file` with the certificates that a NATS server with TLS must be signed by", "the system's",
		func(c *Config) pflag.Value { return (*text)(&c.NATSCA) }},
	{"nats_cert", "`file` with our own certificate for NATS", "",
		func(c *Config) pflag.Value { return (*text)(&c.NATSCert) }},
	{"nats_key", "`file` with the private key of nats_cert", "",
		func(c *Config) pflag.Value { return (*text)(&c.NATSKey) }},
	{"nats_domain", "JetStream `domain` of the stream", "the server's own",
		func(c *Config) pflag.Value { return (*text)(&c.NATSDomain) }},
	{"store", "database `URL`: sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE or oracle:USER@CONNECT", "sqlite:DATA-DIR/lobsink.db",
		func(c *Config) pflag.Value { return (*storeText)(&c.Store) }},
	{"stream", "`name` of the stream of fragments", "",
		func(c *Config) pflag.Value { return (*text)(&c.Stream) }},
	{"root", "subject `prefix`: the fragments of KEY are published to PREFIX.KEY", "",
		func(c *Config) pflag.Value { return (*text)(&c.Root) }},
	{"partitions", "`number` of partitions of the stream", "the stream's; of a new one 1 with SQLite, otherwise 8",
		func(c *Config) pflag.Value { return (*count)(&c.Partitions) }},
	{"max_age", "how long a fragment may wait in memory for others of its document; 0: not at all", "",
		func(c *Config) pflag.Value { return (*duration)(&c.MaxAge) }},
	{"chunk_bytes", "most bytes of one write, and what makes a document due", "",
		func(c *Config) pflag.Value { return (*size)(&c.ChunkBytes) }},
	{"memory", "budget for everything that is held", "",
		func(c *Config) pflag.Value { return (*size)(&c.Memory) }},
	{"max_fragment_bytes", "most bytes of one fragment; a larger one becomes a dead letter", "",
		func(c *Config) pflag.Value { return (*size)(&c.MaxFragmentBytes) }},
	{"oracle_owner", "`schema` of the tables and the package in Oracle", "the user's own",
		func(c *Config) pflag.Value { return (*text)(&c.OracleOwner) }},
	{"oracle_services", "`list` of connect strings, separated by blanks: partition P goes to number P mod N of them", "the one of store",
		func(c *Config) pflag.Value { return (*text)(&c.OracleServices) }},
	{"oracle_takeover", "`list` of connect strings that are used while those of oracle_services do not answer", "none: clusterware moves services",
		func(c *Config) pflag.Value { return (*text)(&c.OracleTakeover) }},
	{"oracle_writers", "most sessions of a service that write LOBs at the same time", "one for each partition",
		func(c *Config) pflag.Value { return (*count)(&c.OracleWriters) }},
	{"lease", "how long a partition stays taken when its owner is gone", "10s; with Oracle 30s",
		func(c *Config) pflag.Value { return (*duration)(&c.Lease) }},
	{"renew", "how often an owner renews its leases", "3/10 of lease",
		func(c *Config) pflag.Value { return (*duration)(&c.Renew) }},
	{"flush_timeout", "deadline of one attempt to flush, below lease", "8/10 of lease; with Oracle 5/6",
		func(c *Config) pflag.Value { return (*duration)(&c.FlushTimeout) }},
	{"drain_timeout", "how long storing what is in memory may take at the end", "",
		func(c *Config) pflag.Value { return (*duration)(&c.DrainTimeout) }},
	{"http", "`address` of metrics and health, or off", "",
		func(c *Config) pflag.Value { return (*text)(&c.HTTP) }},
	{"http_config", "`file` with TLS and users for http: the web configuration of Prometheus exporters", "",
		func(c *Config) pflag.Value { return (*text)(&c.HTTPConfig) }},
	{"pprof", "`address` of profiles of the process, on this machine only, or off", "off",
		func(c *Config) pflag.Value { return (*text)(&c.PProf) }},
	{"data_dir", "`folder` of the embedded database and the embedded NATS server", "",
		func(c *Config) pflag.Value { return (*text)(&c.DataDir) }},
	{"log_level", "lowest `level` that is logged: debug, info, warn or error", "",
		func(c *Config) pflag.Value { return (*level)(&c.LogLevel) }},
	{"log_format", "`format` of the log: auto (text on a terminal, otherwise json), text or json", "",
		func(c *Config) pflag.Value {
			return &choice{(*string)(&c.LogFormat), []string{string(telemetry.Auto), string(telemetry.Text), string(telemetry.JSON)}}
		}},
}

// findSetting returns the setting with a key, or nil.
func findSetting(key string) *setting {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.key == key })
	if i < 0 {
		return nil
	}
	return &settings[i]
}

// text is a string of any content.
type text string

// Set implements pflag.Value.
func (t *text) Set(s string) error { *t = text(s); return nil }

func (t *text) String() string { return string(*t) }

// Type implements pflag.Value.
func (t *text) Type() string { return "text" }

// choice is one of several words.
type choice struct {
	value *string
	words []string
}

// Set implements pflag.Value.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.words, s) {
		last := len(c.words) - 1
		return fmt.Errorf("%q is not %s or %s", s, strings.Join(c.words[:last], ", "), c.words[last])
	}
	*c.value = s
	return nil
}

func (c *choice) String() string { return *c.value }

// Type implements pflag.Value.
func (c *choice) Type() string { return strings.Join(c.words, "|") }

// level is the level of a log.
type level slog.Level

// Set implements pflag.Value.
func (l *level) Set(s string) error {
	for _, v := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if strings.EqualFold(s, v.String()) {
			*l = level(v)
			return nil
		}
	}
	return fmt.Errorf("%q is not debug, info, warn or error", s)
}

func (l *level) String() string { return strings.ToLower(slog.Level(*l).String()) }

// Type implements pflag.Value.
func (l *level) Type() string { return "level" }
