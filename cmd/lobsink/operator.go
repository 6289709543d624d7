package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/audit"
	"github.com/lobsink/lobsink/internal/rebuild"
	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/oracle"
	"github.com/lobsink/lobsink/lobwriter/postgres"
	"github.com/lobsink/lobsink/lobwriter/sqlite"
)

// openOperator opens the database for commands that change documents, beside
// owners.
func openOperator(ctx context.Context, cfg *Config) (lobwriter.Operator, error) {
	u, err := cfg.storeURL()
	if err != nil {
		return nil, err
	}
	if u.oracle != (oracleLogon{}) {
		op, err := oracle.OpenOperator(ctx, cfg.oracleOptions(u))
		if err != nil {
			return nil, err
		}
		return op, nil
	}
	if u.path == "" {
		op, err := postgres.OpenOperator(ctx, cfg.postgres(u))
		if err != nil {
			return nil, err
		}
		return op, nil
	}
	op, err := sqlite.OpenOperator(ctx, cfg.sqliteFile(u))
	if err != nil {
		return nil, fileError(err)
	}
	return op, nil
}

// desk is what the commands of an operator work with.
type desk struct {
	cfg      *Config
	nc       *nats.Conn
	js       jetstream.JetStream
	operator lobwriter.Operator
	stream   *consumer.Fragments
	letters  *consumer.DeadLetters
}

// withNATS runs do with NATS only.
func (a *app) withNATS(do func(*desk) error) error {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	d := &desk{cfg: cfg}
	if err := d.connect(); err != nil {
		return err
	}
	defer d.nc.Close()
	return jetStreamError(do(d))
}

// connect connects to NATS, and waits for a server that restarts.
func (d *desk) connect() (err error) {
	if d.nc, err = dialNATS(d.cfg, nats.MaxReconnects(60), nats.ReconnectWait(500*time.Millisecond)); err != nil {
		return err
	}
	if d.js, err = openJetStream(d.nc, d.cfg); err != nil {
		d.nc.Close()
		return err
	}
	d.letters = consumer.NewDeadLetters(d.js, d.cfg.Stream)
	return nil
}

// withDatabase runs do with the database. It needs NATS for the audit stream only, if
// there is anything to note, and does without where there is none.
func (a *app) withDatabase(ctx context.Context, note bool, do func(*desk) error) (err error) {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	d := &desk{cfg: cfg}
	if d.operator, err = openOperator(ctx, cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.operator.Close()) }()
	if !note {
		return do(d)
	}
	if err := d.connect(); err != nil {
		fmt.Fprintf(a.stderr, "lobsink: warning: this is not noted in the audit stream: %s\n", redact(err.Error()))
		d.nc, d.js = nil, nil
	} else {
		defer d.nc.Close()
	}
	return jetStreamError(do(d))
}

// withDesk runs do with stream and database of the configuration.
func (a *app) withDesk(ctx context.Context, do func(*desk) error) (err error) {
	cfg, err := a.load()
	if err != nil {
		return err
	}
	d := &desk{cfg: cfg}
	if d.operator, err = openOperator(ctx, cfg); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.operator.Close()) }()
	if err := d.connect(); err != nil {
		return err
	}
	defer d.nc.Close()
	if d.stream, err = consumer.OpenFragments(ctx, d.js, cfg.Stream, int(cfg.MaxFragmentBytes)); err != nil {
		return jetStreamError(err)
	}
	return jetStreamError(do(d))
}

// rebuilder returns what rebuilds documents.
func (d *desk) rebuilder(ctx context.Context) (*rebuild.Rebuilder, error) {
	return rebuild.New(ctx, d.operator, d.stream, d.letters)
}

// audited runs a command that changes something between two records in the audit
// stream. Without the first one nothing is changed. do returns what the second one
// says of the work.
func (a *app) audited(cmd *cobra.Command, d *desk, do func() (any, error)) error {
	if d.js == nil {
		_, err := do()
		return err
	}
	ctx := cmd.Context()
	log, err := audit.Open(ctx, d.js, d.cfg.Stream)
	if err != nil {
		return err
	}
	r := audit.Record{
		ID: consumer.NewID(), Stage: audit.Begin, Time: time.Now().UTC(),
		Command: strings.TrimPrefix(cmd.CommandPath(), "lobsink "), Arguments: given(cmd),
		User: userName(), Version: version(),
	}
	r.Host, _ = os.Hostname()
	if err := log.Write(ctx, r); err != nil {
		return err
	}
	detail, failed := do()
	r.Stage, r.Time, r.Result, r.Detail = audit.End, time.Now().UTC(), "ok", detail
	if failed != nil {
		r.Result = redact(failed.Error())
	}
	if err := log.Write(context.WithoutCancel(ctx), r); err != nil {
		text, _ := json.Marshal(r)
		fmt.Fprintf(a.stderr, "lobsink: warning: %v; it would have said: %s\n", err, text)
	}
	return failed
}

// given returns the arguments and flags of a command as they were given, but for
// those of all commands, which may have passwords in them.
func given(cmd *cobra.Command) []string {
	args := slices.Clone(cmd.Flags().Args())
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if cmd.InheritedFlags().Lookup(f.Name) != nil {
			return
		}
		if many, ok := f.Value.(pflag.SliceValue); ok {
			for _, v := range many.GetSlice() {
				args = append(args, "--"+f.Name+"="+v)
			}
			return
		}
		args = append(args, "--"+f.Name+"="+f.Value.String())
	})
	return args
}

func userName() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "unknown"
}
