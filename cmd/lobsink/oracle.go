package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lobsink/lobsink/lobwriter/oracle"
)

// oracleLease is the lease unless somebody says another one: the clocks of a
// cluster's nodes differ.
const oracleLease = 30 * time.Second

// oracleProcess is what an Oracle database needs beside settings, once for the
// process.
type oracleProcess struct {
	password func(context.Context) (string, error)
	gate     *oracle.Gate
	// log and metrics are those of `run`; nil otherwise.
	log     *slog.Logger
	metrics prometheus.Registerer
}

// oracleProcess takes the password from the environment: the password itself, or
// the file that it is in, which is read again for each connection.
func (a *app) oracleProcess() *oracleProcess {
	p := &oracleProcess{gate: oracle.NewGate()}
	password, file := a.env["LOBSINK_ORACLE_PASSWORD"], a.env["LOBSINK_ORACLE_PASSWORD_FILE"]
	switch {
	case password != "":
		p.password = func(context.Context) (string, error) { return password, nil }
	case file != "":
		p.password = func(context.Context) (string, error) {
			text, err := os.ReadFile(file)
			return string(bytes.TrimRight(text, "\r\n")), err
		}
	}
	return p
}

func (c *Config) oracleFaults() (faults []error) {
	if !c.isOracle() {
		return nil
	}
	if u, err := parseStore(c.Store); err == nil && u.oracle.user != "" && (c.oracle == nil || c.oracle.password == nil) {
		faults = append(faults, fmt.Errorf("store names the Oracle user %s, but there is no password: set LOBSINK_ORACLE_PASSWORD or LOBSINK_ORACLE_PASSWORD_FILE, or leave the user out for external authentication", u.oracle.user))
	}
	services, takeover := strings.Fields(c.OracleServices), strings.Fields(c.OracleTakeover)
	if len(takeover) > 0 && len(takeover) != len(services) {
		faults = append(faults, fmt.Errorf("oracle_takeover has %d connect strings and oracle_services %d: write one for each, in the same order", len(takeover), len(services)))
	}
	return faults
}

func (c *Config) oracleOptions(u storeURL) oracle.Options {
	o := oracle.Options{
		User: u.oracle.user, Connect: u.oracle.connect, Owner: c.OracleOwner, Prefix: c.tables,
		ChunkBytes: int(c.ChunkBytes), FlushTimeout: c.FlushTimeout, Flushes: c.OracleWriters, Version: version(),
	}
	if o.Flushes == 0 {
		o.Flushes = c.DefaultPartitions()
	}
	if host, err := os.Hostname(); err == nil {
		o.Name = host
	}
	if p := c.oracle; p != nil {
		o.Password, o.Gate, o.Log, o.Registerer = p.password, p.gate, p.log, p.metrics
	}
	takeover := strings.Fields(c.OracleTakeover)
	for i, connect := range strings.Fields(c.OracleServices) {
		s := oracle.Service{Connect: connect}
		if i < len(takeover) {
			s.Takeover = takeover[i]
		}
		o.Services = append(o.Services, s)
	}
	return o
}

// setupOracle says which version the tables have.
func setupOracle(ctx context.Context, o oracle.Options) (from, to int64, err error) {
	return withOracleAdmin(ctx, o, (*oracle.Admin).Setup)
}

// withOracleAdmin runs do with a session for administrators.
func withOracleAdmin(ctx context.Context, o oracle.Options, do func(*oracle.Admin, context.Context) (int64, int64, error)) (from, to int64, err error) {
	a, err := oracle.OpenAdmin(ctx, o)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return do(a, ctx)
}

// removeOracle drops the tables, and with them all documents.
func removeOracle(ctx context.Context, o oracle.Options) error {
	_, _, err := withOracleAdmin(ctx, o, func(a *oracle.Admin, ctx context.Context) (int64, int64, error) {
		return 0, 0, a.Remove(ctx)
	})
	return err
}
