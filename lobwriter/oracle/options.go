package oracle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lobsink/lobsink/internal/orascript"
	"github.com/lobsink/lobsink/lobwriter"
)

// The limits of one flush, which is always one call.
const (
	// maxDocuments keeps the text that comes back, reasons and errors, within one
	// VARCHAR2.
	maxDocuments = 1024
	// maxBytes keeps undo, and the time for which rows are locked, short.
	maxBytes = 4 << 20
	// maxChunkBytes is where RAW ends in PL/SQL.
	maxChunkBytes = 32767
)

// prefix is what the names of all objects begin with, unless Options say
// otherwise.
const prefix = "lobsink_"

// Options are the settings of a store, a reader and an administrator.
type Options struct {
	// User is the database user; "": external authentication (wallet, Kerberos,
	// operating system).
	User string
	// Password is asked before each connection, so that a rotated one is found;
	// nil with external authentication.
	Password func(ctx context.Context) (string, error)
	// Connect is where the database is, in any form that Oracle's client knows:
	// Easy Connect, a TNS alias, a descriptor.
	Connect string
	// Services are where partitions go instead of to Connect: partition p to
	// service p modulo their number. For RAC: one service for each node, so that
	// the blocks of a partition's documents stay on one. None: all go to Connect.
	Services []Service
	// TakeoverAfter is for how long a service must not have answered before its
	// Takeover is tried; 0: 30 s.
	TakeoverAfter time.Duration
	// Owner is the schema of the tables and of the package; "": the user's own.
	Owner string
	// Prefix is what the names of all objects begin with; "": lobsink_.
	Prefix string
	// ChunkBytes is the most bytes of one LOB write; 0: 32,767.
	ChunkBytes int
	// FlushTimeout is the deadline of calls whose caller gives none; 0: 25 s.
	FlushTimeout time.Duration
	// Flushes is the most flushes at the same time and service; more wait. It is
	// also the most sessions that write LOBs. 0: 8.
	Flushes int
	// Name and Version are those of the member, for CLIENT_INFO of its sessions.
	Name, Version string
	// ClientDir is the folder of Oracle's client library; "": where the loader
	// looks (LD_LIBRARY_PATH, ldconfig). The first one counts for the process.
	ClientDir string
	// Gate stops all connections after an error of credentials. One for the whole
	// process; nil: one of its own.
	Gate *Gate
	// Log is told of services and sessions; nil: nobody is.
	Log *slog.Logger
	// Registerer is where metrics by instance go; nil: nowhere.
	Registerer prometheus.Registerer
}

// Service is where a group of partitions goes.
type Service struct {
	// Connect is as Options.Connect.
	Connect string
	// Takeover is used while Connect does not answer; "": nothing is. Only for
	// databases without clusterware, which moves services by itself.
	Takeover string
}

func (o Options) withDefaults() Options {
	o.Prefix = cmp.Or(o.Prefix, prefix)
	o.ChunkBytes = cmp.Or(o.ChunkBytes, maxChunkBytes)
	o.FlushTimeout = cmp.Or(o.FlushTimeout, 25*time.Second)
	o.Flushes = cmp.Or(o.Flushes, 8)
	o.TakeoverAfter = cmp.Or(o.TakeoverAfter, 30*time.Second)
	if len(o.Services) == 0 {
		o.Services = []Service{{Connect: o.Connect}}
	}
	if o.Gate == nil {
		o.Gate = NewGate()
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// name is what an identifier may be without quotes, and a prefix of one.
var name = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_$#]{0,127}$`)

func (o Options) check() error {
	refuse := func(format string, args ...any) error {
		return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "connect", Err: fmt.Errorf(format, args...)}
	}
	switch {
	case o.Owner != "" && !name.MatchString(strings.Trim(o.Owner, `"`)):
		return refuse("%q is no name of a schema", o.Owner)
	case !name.MatchString(o.Prefix):
		return refuse("%q cannot be the beginning of names", o.Prefix)
	case o.ChunkBytes < 4 || o.ChunkBytes > maxChunkBytes:
		return refuse("chunks of %d bytes: write 4 to %d", o.ChunkBytes, maxChunkBytes)
	case o.User != "" && o.Password == nil:
		return refuse("there is no password for user %s", o.User)
	}
	for _, s := range o.Services {
		if s.Connect == "" {
			return refuse("it is not said where the database is")
		}
	}
	return nil
}

// in puts the names of this set of objects into a block.
func (o Options) in(block string) string {
	return strings.ReplaceAll(block, prefix+"v1.", o.qualified("v1")+".")
}

// qualified is the name of an object of this set, as SQL has it.
func (o Options) qualified(object string) string {
	if o.Owner == "" {
		return o.Prefix + object
	}
	return o.owner().Quoted() + "." + o.Prefix + object
}

// owner is Owner as the data dictionary has it.
func (o Options) owner() orascript.Name {
	if quoted := strings.Trim(o.Owner, `"`); quoted != o.Owner {
		return orascript.Name(quoted)
	}
	return orascript.Name(strings.ToUpper(o.Owner))
}

// errNoReply is a reply that is none: a number is missing, or a table has another
// length than it must have. Nothing is inferred from it.
var errNoReply = errors.New("the reply does not belong to the call: the outcome is unknown")
