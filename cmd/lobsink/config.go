package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lobsink/lobsink/internal/telemetry"
)

// Config is the configuration of lobsink. Its keys in the YAML file are the names
// of settings; see there for what each one means.
type Config struct {
	// NATS is a list of URLs, separated by commas; "": the one of NATSContext,
	// or the embedded server.
	NATS string
	// NATSContext is the name of a context of the nats command, or the path of
	// one; "": none.
	NATSContext string
	NATSCreds   string
	NATSNKey    string
	NATSCA      string
	NATSCert    string
	NATSKey     string
	// NATSDomain is the JetStream domain; "": the one of NATSContext, or the
	// server's own.
	NATSDomain string
	// NATSListen is the address of the embedded server.
	NATSListen string
	Store      string
	Stream     string
	Root       string
	// Partitions is 0 until somebody says a number: an existing stream's
	// then wins. See DefaultPartitions.
	Partitions int

	MaxAge           time.Duration
	ChunkBytes       int64
	Memory           int64
	MaxFragmentBytes int64

	Lease        time.Duration
	Renew        time.Duration
	FlushTimeout time.Duration
	DrainTimeout time.Duration

	// OracleOwner is the schema of tables and package; "": the user's own.
	OracleOwner string
	// OracleServices and OracleTakeover are lists of connect strings, separated
	// by blanks.
	OracleServices string
	OracleTakeover string
	OracleWriters  int

	// HTTP is the address of metrics and health; "": none.
	HTTP string
	// HTTPConfig is a file with TLS and users for it; "": neither.
	HTTPConfig string
	// PProf is the address of profiles; "": none.
	PProf   string
	DataDir string

	// tables is what the names of the tables begin with; "": lobsink_. It is
	// no setting: only the demo has tables of its own.
	tables string

	// refused takes what NATS does not let a command do; it may be nil.
	refused *refusal

	// oracle is what an Oracle database needs beside settings; nil: there is none.
	oracle *oracleProcess

	LogLevel  slog.Level
	LogFormat telemetry.Format
}

// maxChunkBytes is the largest chunk that every store takes in one call: Oracle's
// RAW in PL/SQL ends there.
const maxChunkBytes = 32767

// messageOverhead is what a message may take besides its fragment: subject and
// headers.
const messageOverhead = 64 << 10

// defaultConfig returns the defaults of all settings that have a fixed one. See
// complete for the others.
func defaultConfig() Config {
	return Config{
		NATSListen:       "127.0.0.1:4222",
		Stream:           "FRAGMENTS",
		Root:             "fragments",
		MaxAge:           time.Second,
		ChunkBytes:       maxChunkBytes,
		Memory:           256 << 20,
		MaxFragmentBytes: 8 << 20,
		Lease:            10 * time.Second,
		DrainTimeout:     30 * time.Second,
		HTTP:             "127.0.0.1:7070",
		DataDir:          "./lobsink-data",
		LogFormat:        telemetry.Auto,
	}
}

// complete sets what follows from other settings and was not set itself.
func (c *Config) complete() {
	if c.Store == "" {
		c.Store = "sqlite:" + filepath.Join(c.DataDir, "lobsink.db")
	}
	if c.Renew == 0 {
		c.Renew = c.Lease * 3 / 10
	}
	switch {
	case c.FlushTimeout > 0:
	case c.isOracle():
		c.FlushTimeout = c.Lease * 5 / 6
	default:
		c.FlushTimeout = c.Lease * 8 / 10
	}
	if c.HTTP == "off" {
		c.HTTP = ""
	}
	if c.PProf == "off" {
		c.PProf = ""
	}
}

// Embedded reports whether `lobsink run` serves NATS itself.
func (c *Config) Embedded() bool { return c.NATS == "" && c.NATSContext == "" }

// sqlite reports whether the store is a SQLite file.
func (c *Config) sqlite() bool { return strings.HasPrefix(c.Store, "sqlite:") }

// isOracle reports whether the store is an Oracle database.
func (c *Config) isOracle() bool { return strings.HasPrefix(c.Store, "oracle:") }

// defaultStore reports whether nobody said another store.
func (c *Config) defaultStore() bool {
	return c.Store == "sqlite:"+filepath.Join(c.DataDir, "lobsink.db")
}

// driver is the name of the store in metrics.
func (c *Config) driver() string {
	switch {
	case c.sqlite():
		return "sqlite"
	case c.isOracle():
		return "oracle"
	}
	return "postgres"
}

// NATSURL returns where NATS is: where `lobsink run` serves it when no server is
// configured.
func (c *Config) NATSURL() string {
	switch {
	case c.Embedded():
		return "nats://" + c.NATSListen
	case c.NATS == "":
		return "context " + c.NATSContext
	}
	return c.NATS
}

// DefaultPartitions returns the partition count of a stream that is made without
// a number: SQLite has one writer.
func (c *Config) DefaultPartitions() int {
	switch {
	case c.Partitions > 0:
		return c.Partitions
	case c.sqlite():
		return 1
	}
	return 8
}

// Validate returns every fault of the configuration, one sentence each, or nil.
func (c *Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Stream == "" || strings.ContainsAny(c.Stream, ".*>/\\ \t\r\n") {
		fault("stream is %q, which cannot be the name of a stream: write a name without blanks, dots, slashes, * and >", c.Stream)
	}
	if !isRoot(c.Root) {
		fault("root is %q, which cannot be the beginning of a subject: write tokens without blanks, * and >, separated by single dots, such as fragments", c.Root)
	}
	if c.ChunkBytes < utf8.UTFMax || c.ChunkBytes > maxChunkBytes {
		fault("chunk_bytes is %d: it must be %d to %d", c.ChunkBytes, utf8.UTFMax, maxChunkBytes)
	}
	if c.MaxFragmentBytes < 1 || c.MaxFragmentBytes > maxFragmentBytes {
		fault("max_fragment_bytes is %d: it must be 1 to %d, the largest message of NATS", c.MaxFragmentBytes, int64(maxFragmentBytes))
	} else if p := c.DefaultPartitions(); (c.Partitions > 0 || c.Embedded()) && c.Memory < memoryNeeded(p, c.MaxFragmentBytes) {
		fault("memory is %s; for %s and fragments of up to %s it must be at least %s: raise memory, or lower max_fragment_bytes or partitions",
			bytesText(c.Memory), plural(p, "partition"), bytesText(c.MaxFragmentBytes), bytesText(memoryNeeded(p, c.MaxFragmentBytes)))
	}
	faults = append(faults, c.leaseFaults()...)
	faults = append(faults, c.oracleFaults()...)
	if c.NATS != "" && c.NATSContext != "" {
		fault("nats and nats_context both name a server: leave one of them out")
	}
	if (c.NATSCert == "") != (c.NATSKey == "") {
		fault("nats_cert and nats_key belong together: set both, or none")
	}
	if c.Embedded() && c.NATSDomain != "" {
		fault("nats_domain is %q, but the embedded NATS server has no domain: name a server with nats", c.NATSDomain)
	}
	if c.Embedded() && !isHostPort(c.NATSListen) {
		fault("nats_listen is %q, which is no address for programs to connect to: write HOST:PORT, such as 127.0.0.1:4222", c.NATSListen)
	}
	if c.HTTP != "" && !isListenAddress(c.HTTP) {
		fault("http is %q, which is no address to listen on: write HOST:PORT, such as 127.0.0.1:7070, or off", c.HTTP)
	}
	if c.HTTPConfig != "" {
		if err := telemetry.CheckWebConfig(c.HTTPConfig); err != nil {
			fault("http_config: %s cannot be used: %w; see the web configuration of Prometheus exporters", c.HTTPConfig, err)
		}
	}
	if c.PProf != "" && (!isHostPort(c.PProf) || open(c.PProf)) {
		fault("pprof is %q: profiles show what the process works on, so write an address of this machine only, such as 127.0.0.1:6060, or off", c.PProf)
	}
	return errors.Join(faults...)
}

func (c *Config) leaseFaults() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Lease < time.Second {
		fault("lease is %s: it must be at least 1s", c.Lease)
		return faults // the others follow from it
	}
	if c.FlushTimeout >= c.Lease {
		fault("flush_timeout is %s, but an attempt must end before the lease of %s does: lower flush_timeout or raise lease", c.FlushTimeout, c.Lease)
	}
	if c.FlushTimeout < 100*time.Millisecond {
		fault("flush_timeout is %s: it must be at least 100ms", c.FlushTimeout)
	}
	if c.Renew > c.Lease/2 {
		fault("renew is %s, but a lease of %s needs a second try before it ends: lower renew to %s or raise lease", c.Renew, c.Lease, c.Lease*3/10)
	}
	return faults
}

// maxFragmentBytes is the largest max_payload that a NATS server can have.
const maxFragmentBytes = 64 << 20

// uncounted is the part of memory, one in so many, that is not for what is held:
// it is for what has been read or written and not been collected yet.
const uncounted = 4

// memoryNeeded returns the smallest memory: half of it is shared out evenly, and
// each partition's share must take its largest message.
func memoryNeeded(partitions int, fragment int64) int64 {
	held := 2 * int64(partitions) * (fragment + messageOverhead)
	need := held * uncounted / (uncounted - 1)
	return (need + 1<<20 - 1) >> 20 << 20 // in whole MiB
}

func isRoot(root string) bool {
	if strings.HasPrefix(root, "$") || strings.HasPrefix(root, "_INBOX") {
		return false // these belong to NATS itself
	}
	for token := range strings.SplitSeq(root, ".") {
		if token == "" || strings.ContainsAny(token, "*> \t\r\n\x00") {
			return false
		}
	}
	return true
}

// isHostPort reports whether addr is an address to listen on and to connect to.
func isHostPort(addr string) bool {
	host, port, err := net.SplitHostPort(addr)
	return err == nil && host != "" && port != "0" && isListenAddress(addr)
}

func isListenAddress(addr string) bool {
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}
