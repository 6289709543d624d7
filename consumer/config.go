package consumer

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/lobsink/lobsink/lobwriter"
)

// Config says what Run consumes, and into what. All fields are required unless
// their comment says otherwise.
type Config struct {
	// Store is where documents go. Run repeats its flushes; a store that
	// already does so must not be passed.
	Store lobwriter.Store
	// NATS is the connection. It should reconnect for ever.
	NATS *nats.Conn
	// Domain is the JetStream domain; "" for the default one.
	Domain string
	// Stream is the name of the stream.
	Stream string
	// Root is the subject prefix that the stream must have.
	Root string
	// Partitions is the partition count that the stream must have; 0 takes the
	// stream's.
	Partitions int
	// Member is this process.
	Member lobwriter.Member

	// MaxAge is how long a fragment may wait before its document is due;
	// 0: not at all.
	MaxAge time.Duration
	// ChunkBytes is the most bytes of one chunk; the store's own limit if that
	// is smaller.
	ChunkBytes int
	// MaxFragment is the most bytes of one fragment.
	MaxFragment int
	// Memory is the budget for everything held, in bytes.
	Memory int64

	// Lease, Renew: see Options.
	Lease, Renew time.Duration
	// FlushTimeout is the deadline of one attempt to flush, below Lease.
	FlushTimeout time.Duration
	// DrainTimeout is how long a soft stop may take before it becomes a hard
	// one.
	DrainTimeout time.Duration

	Log *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
	// OnRetry is told of each database call that is going to be repeated; may
	// be nil.
	OnRetry func(op string, attempt int, err error, wait time.Duration)
	// Status may be nil.
	Status *Status
	// Control may be nil.
	Control *Control
}

// quietFor is how often the server is asked when nothing arrives: design limit
// 5 s, and at most the lease, within which an idle checkpoint has to move.
const quietFor = 5 * time.Second

func (c *Config) quiet() time.Duration { return min(quietFor, c.Lease/2) }

// fetchWait is how long one fetch waits for messages. It bounds how soon a
// quiet partition asks the server.
func (c *Config) fetchWait() time.Duration {
	return max(min(c.quiet()/2, 2*time.Second), 100*time.Millisecond)
}

// check finds what would stop Run in the middle.
func (c *Config) check() error {
	for name, d := range map[string]time.Duration{"lease": c.Lease, "renew": c.Renew, "flush_timeout": c.FlushTimeout} {
		if d <= 0 {
			return &lobwriter.Error{Kind: lobwriter.Fatal, Op: "configuration", Err: fmt.Errorf("%s is %v, it must be above 0", name, d)}
		}
	}
	return nil
}
