package postgres

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// connectError is a connection that was not made, in one line. The driver has a
// line for each address with and without TLS, and the same cause in most of them.
type connectError struct{ cause *pgconn.ConnectError }

func (e *connectError) Unwrap() error { return e.cause }

func (e *connectError) Error() string {
	c := e.cause.Config
	var hosts []string
	for _, h := range append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port}}, c.Fallbacks...) {
		if a := net.JoinHostPort(h.Host, fmt.Sprint(h.Port)); !slices.Contains(hosts, a) {
			hosts = append(hosts, a)
		}
	}
	return fmt.Sprintf("cannot connect to PostgreSQL at %s, database %s, as %s: %s",
		strings.Join(hosts, ", "), c.Database, c.User, strings.Join(causes(e.cause), "; "))
}

// causes returns each cause once. That a server has no TLS is none where the
// connection was tried without TLS too.
func causes(err *pgconn.ConnectError) (all []string) {
	tls := ""
	for _, line := range leaves(err.Unwrap()) {
		switch text := line.Error(); {
		case strings.Contains(text, "server refused TLS connection"):
			tls = text
		case !slices.Contains(all, text):
			all = append(all, text)
		}
	}
	if all == nil && tls != "" {
		all = []string{tls}
	}
	return all
}

// leaves takes joined errors apart, and each of them down to where it is said
// what happened; the driver's words around it name the address again.
func leaves(err error) []error {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		var all []error
		for _, one := range e.Unwrap() {
			all = append(all, leaves(one)...)
		}
		return all
	case *net.OpError, *pgconn.PgError:
		return []error{err}
	}
	if inner := errors.Unwrap(err); inner != nil {
		return leaves(inner)
	}
	return []error{err}
}
