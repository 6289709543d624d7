package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/synadia-io/orbit.go/natscontext"

	"github.com/lobsink/lobsink/internal/publish"
)

// natsURL is a list of URLs of NATS servers, separated by commas.
type natsURL string

// Set implements pflag.Value. Its errors do not repeat the URL: it may have a
// password.
func (n *natsURL) Set(s string) error {
	for one := range strings.SplitSeq(s, ",") {
		one = strings.TrimSpace(one)
		if !strings.Contains(one, "://") {
			one = "nats://" + one
		}
		u, err := url.Parse(one)
		if err != nil || u.Hostname() == "" {
			return errors.New("this is no URL of a NATS server; write nats://HOST:PORT, several separated by commas")
		}
		switch u.Scheme {
		case "nats", "tls", "ws", "wss":
		default:
			return fmt.Errorf("NATS servers have no %s:// URLs; write nats://HOST:PORT, tls://, ws:// or wss://", u.Scheme)
		}
	}
	*n = natsURL(s)
	return nil
}

func (n *natsURL) String() string { return redact(string(*n)) }

// Type implements pflag.Value.
func (n *natsURL) Type() string { return "URL" }

// natsOptions are the options of every connection.
func natsOptions(cfg *Config) []nats.Option {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	options := []nats.Option{nats.Name(fmt.Sprintf("lobsink/%s %s", version(), host))}
	if cfg.NATSCreds != "" {
		options = append(options, nats.UserCredentials(cfg.NATSCreds))
	}
	if cfg.NATSNKey != "" {
		options = append(options, nkeyOption(cfg.NATSNKey))
	}
	if cfg.NATSCA != "" {
		options = append(options, nats.RootCAs(cfg.NATSCA))
	}
	if cfg.NATSCert != "" {
		options = append(options, nats.ClientCert(cfg.NATSCert, cfg.NATSKey))
	}
	return options
}

// nkeyOption reads the seed of an NKey.
func nkeyOption(path string) nats.Option {
	return func(o *nats.Options) error {
		option, err := nats.NkeyOptionFromSeed(path)
		if err != nil {
			return misconfigured("the seed of the NKey for NATS cannot be read: %w; correct --nats-nkey", err)
		}
		return option(o)
	}
}

// dial connects to the configured server. A context may name the domain.
func dial(cfg *Config, options []nats.Option) (*nats.Conn, error) {
	if cfg.NATSContext == "" {
		return nats.Connect(cfg.NATSURL(), options...)
	}
	nc, named, err := natscontext.Connect(cfg.NATSContext, options...)
	if err == nil && cfg.NATSDomain == "" {
		cfg.NATSDomain = named.JSDomain
	}
	return nc, err
}

// openJetStream returns JetStream in the configured domain. A domain that nobody
// answers for is an error at once.
func openJetStream(nc *nats.Conn, cfg *Config) (jetstream.JetStream, error) {
	if cfg.NATSDomain == "" {
		return jetstream.New(nc)
	}
	js, err := jetstream.NewWithDomain(nc, cfg.NATSDomain)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	_, err = js.AccountInfo(ctx)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) {
		return nil, withCode(exitUnavailable, fmt.Errorf("no JetStream answers for the domain %s: correct --nats-domain, or start it", cfg.NATSDomain))
	}
	return js, nil
}

// connectNATS returns a connection for a program that runs for long: it is there
// at once, even while no server is, reconnects for ever, and logs what happens to
// it.
func connectNATS(cfg *Config, log *slog.Logger) (*nats.Conn, error) {
	options := append(natsOptions(cfg), lastingOptions(log)...)
	nc, err := dial(cfg, options)
	if err != nil {
		return nil, natsError(cfg, err)
	}
	return nc, nil
}

// lastingOptions make a connection reconnect for ever.
func lastingOptions(log *slog.Logger) []nats.Option {
	return []nats.Option{
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(500 * time.Millisecond),
		nats.ReconnectJitter(500*time.Millisecond, time.Second),
		// A server that is frozen, or cut off without a word, is noticed
		// after two pings.
		nats.PingInterval(10 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.DisconnectErrHandler(func(nc *nats.Conn, err error) {
			if !nc.IsClosed() {
				log.Debug("NATS connection lost", "err", err) // the consumer warns
			}
		}),
		nats.ConnectHandler(func(nc *nats.Conn) { log.Info("NATS connected", "server", nc.ConnectedUrlRedacted()) }),
		nats.ReconnectHandler(func(nc *nats.Conn) { log.Debug("NATS connected again", "server", nc.ConnectedUrlRedacted()) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { log.Warn("NATS cannot be reached, will try again", "err", err) }),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Error("NATS", "err", err) }),
		nats.LameDuckModeHandler(func(nc *nats.Conn) {
			log.Info("NATS server is about to stop", "server", nc.ConnectedUrlRedacted())
		}),
	}
}

// dialTimeout is how long a command waits for one server.
const dialTimeout = 3 * time.Second

// dialNATS returns a connection for a command that does one thing. No server is
// an error at once.
func dialNATS(cfg *Config, more ...nats.Option) (*nats.Conn, error) {
	options := append(natsOptions(cfg), nats.Timeout(dialTimeout), nats.MaxReconnects(3), nats.ErrorHandler(cfg.refused.note))
	nc, err := dial(cfg, append(options, more...))
	if err != nil {
		return nil, natsError(cfg, err)
	}
	return nc, nil
}

// publishingOptions are those of a connection that publishes: it waits for a
// server that restarts for as long as publish.Options.RetryFor says.
func publishingOptions() []nats.Option {
	return append(publish.ConnectOptions(), nats.MaxReconnects(-1), nats.ReconnectWait(250*time.Millisecond))
}

// natsError says what to do about a connection that was not made.
func natsError(cfg *Config, err error) error {
	where := redact(cfg.NATSURL())
	switch {
	case withExitCode(err):
		return err
	case errors.Is(err, os.ErrNotExist):
		return misconfigured("a file for the connection to NATS cannot be read: %w; correct the setting that names it", err)
	case errors.As(err, new(x509.UnknownAuthorityError)), errors.As(err, new(x509.HostnameError)), errors.As(err, new(x509.CertificateInvalidError)):
		return misconfigured("the certificate of NATS at %s is not trusted: %w; name the certificates that signed it with --nats-ca, and the host that it is for", where, err)
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired):
		return misconfigured("NATS at %s refuses who we are: %w; correct the user and password in --nats, or --nats-creds", where, err)
	case cfg.Embedded():
		return withCode(exitUnavailable, fmt.Errorf("no NATS server at %s (%w): start `lobsink run`, which serves one there, or name another one with --nats", where, err))
	}
	return withCode(exitUnavailable, fmt.Errorf("no NATS server at %s (%w): start it, or correct --nats", where, err))
}

// subjectsOverlap is "subjects overlap with an existing stream" (nats-server,
// server/errors.json).
const subjectsOverlap = 10065

// jetStreamError says what to do about an answer of JetStream, or none.
func jetStreamError(err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return withCode(exitUnavailable, fmt.Errorf("the NATS server answers, but no JetStream does: start it with -js, or wait until its cluster has a leader (%w)", err))
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return misconfigured("the NATS server has no JetStream for us: start it with -js, and enable it for the account (%w)", err)
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.As(err, &api) && api.ErrorCode == subjectsOverlap:
		return withCode(exitConfig, err)
	}
	return err
}
