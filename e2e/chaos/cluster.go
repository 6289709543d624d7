package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// clusterServers is the number of NATS servers: each keeps a copy of everything.
const clusterServers = 3

// streamName is the stream of fragments.
const streamName = "FRAGMENTS"

// cluster is a cluster of nats-server processes.
type cluster struct {
	binary  string
	servers []*natsServer
	conn    *nats.Conn // of this program, to any server
	js      jetstream.JetStream
}

type natsServer struct {
	name   string
	client string // its address for clients
	config string // its configuration file
	log    *os.File
	proc   *process
}

// startCluster starts the servers. They find each other, and their JetStream a
// leader, when they do: see request.
func startCluster(binary, dir string, free *ports) (_ *cluster, err error) {
	c := &cluster{binary: binary}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	var routes []string
	for i := range clusterServers {
		s := &natsServer{name: fmt.Sprintf("nats-%d", i+1)}
		route, err := free.next()
		if err != nil {
			return nil, err
		}
		if s.client, err = free.next(); err != nil {
			return nil, err
		}
		s.config = filepath.Join(dir, s.name+".conf")
		routes = append(routes, route)
		c.servers = append(c.servers, s)
	}
	for i, s := range c.servers {
		// Nobody learns the addresses of the other servers: members would then
		// go round their links.
		config := fmt.Sprintf(`server_name: %s
listen: %q
jetstream { store_dir: %q }
cluster { name: chaos, listen: %q, no_advertise: true, routes: [ nats://%s ] }
`, s.name, s.client, filepath.Join(dir, s.name), routes[i], strings.Join(routes, ", nats://"))
		if err := os.WriteFile(s.config, []byte(config), 0o600); err != nil {
			return nil, err
		}
		if s.log, err = os.Create(filepath.Join(dir, s.name+".log")); err != nil {
			return nil, err
		}
		if err := c.start(s); err != nil {
			return nil, err
		}
	}
	c.conn, err = nats.Connect(c.urls(), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1),
		nats.ReconnectWait(100*time.Millisecond), nats.PingInterval(2*time.Second),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {})) // what breaks is meant to
	if err != nil {
		return nil, err
	}
	c.js, err = jetstream.New(c.conn)
	return c, err
}

// addresses are those of the servers, for clients.
func (c *cluster) addresses() (out []string) {
	for _, s := range c.servers {
		out = append(out, s.client)
	}
	return out
}

// urls is the list that clients connect by.
func (c *cluster) urls() string { return natsURLs(c.addresses()) }

func natsURLs(addresses []string) string { return "nats://" + strings.Join(addresses, ",nats://") }

func (c *cluster) start(s *natsServer) (err error) {
	s.proc, err = startProcess(s.name, s.log, c.binary, "-c", s.config)
	return err
}

// leader returns the server that leads the stream of fragments, as soon as there
// is one.
func (c *cluster) leader(ctx context.Context) (leader *natsServer, err error) {
	err = c.request(ctx, func(info *jetstream.ClusterInfo) error {
		for _, s := range c.servers {
			if s.name == info.Leader {
				leader = s
				return nil
			}
		}
		return errors.New("the stream has no leader")
	})
	return leader, err
}

// whole waits until all servers have all of the stream of fragments.
func (c *cluster) whole(ctx context.Context) error {
	return c.request(ctx, func(info *jetstream.ClusterInfo) error {
		if info.Leader == "" || len(info.Replicas) != clusterServers-1 {
			return errors.New("the stream has no leader")
		}
		for _, r := range info.Replicas {
			if !r.Current || r.Offline {
				return fmt.Errorf("server %s is behind by %d messages", r.Name, r.Lag)
			}
		}
		return nil
	})
}

// request asks for the state of the stream until it is as it should be. A
// request may get no answer while a leader changes.
func (c *cluster) request(ctx context.Context, ok func(*jetstream.ClusterInfo) error) error {
	return eventually(ctx, func() error {
		call, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		s, err := c.js.Stream(call, streamName)
		if err != nil {
			return err
		}
		info := s.CachedInfo()
		if info.Cluster == nil {
			return errors.New("the stream has no cluster")
		}
		return ok(info.Cluster)
	})
}

func (c *cluster) close() {
	if c.conn != nil {
		c.conn.Close()
	}
	for _, s := range c.servers {
		if s.proc != nil {
			s.proc.kill()
		}
		if s.log != nil {
			_ = s.log.Close() // a log of a process that has ended
		}
	}
}

// eventually tries until it is done, or says at the end of ctx what was wrong
// last.
func eventually(ctx context.Context, do func() error) error {
	for {
		err := do()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}
