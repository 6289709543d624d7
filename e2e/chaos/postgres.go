package main

import (
	"fmt"
	"net/url"

	"github.com/lobsink/lobsink/internal/pgtest"
)

// postgres is a real PostgreSQL server. It is for one goroutine at a time.
type postgres struct {
	server *pgtest.Server
	url    string
	host   string // its address
}

func startPostgres() (p *postgres, err error) {
	defer recovered(&err)
	// An immediate stop of the server alone loses nothing without fsync.
	server, err := pgtest.New(pgtest.NoSync(), pgtest.Set("max_connections", "300"))
	if err != nil {
		return nil, err
	}
	p = &postgres{server: server, url: server.URL("postgres")}
	u, err := url.Parse(p.url)
	if err != nil {
		return p, err
	}
	p.host = u.Host
	return p, nil
}

// through returns the URL of the database by way of another address.
func (p *postgres) through(address string) string {
	u, _ := url.Parse(p.url) // it was parsed before
	u.Host = address
	return u.String()
}

// stop stops the server as a crash would.
func (p *postgres) stop() (err error) {
	defer recovered(&err)
	p.server.StopImmediate()
	return nil
}

func (p *postgres) start() (err error) {
	defer recovered(&err)
	p.server.Restart()
	return nil
}

func (p *postgres) close() (err error) {
	defer recovered(&err)
	p.server.Close()
	return nil
}

// recovered makes an error of what pgtest panics with outside of tests.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("PostgreSQL: %v", r)
	}
}
