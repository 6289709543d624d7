package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/lobsink/lobsink/e2e/chaos/check"
)

// options are what a run is made of.
type options struct {
	lobsink    string // the binaries
	natsServer string
	dir        string // a folder for everything
	keep       bool   // it stays

	seed      uint64
	faults    int
	fragments int
	documents int
	phase     time.Duration // over how long faults and fragments are spread
	log       *slog.Logger
}

// Bounds of a run. All together it takes at most ten minutes.
const (
	runLimit     = 10*time.Minute - 20*time.Second
	startLimit   = 2 * time.Minute   // until the servers run
	backlogLimit = 2 * time.Minute   // until the backlog is published
	publishLimit = 90 * time.Second  // after the last fault
	settleLimit  = 150 * time.Second // until everything is stored
)

// run is one run, and what there is of it.
type run struct {
	options
	cluster   *cluster
	db        *postgres
	members   *members
	takeovers takeovers

	mu       sync.Mutex
	problems []error // what went wrong besides the documents
}

// do makes a run. The error is of a run that could not be made; what was found
// wrong with lobsink is in the report and in the problems.
func do(ctx context.Context, o options) (r report, problems []error, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runLimit, errors.New("the run has taken too long"))
	defer cancel()
	n := &run{options: o}
	defer func() { err = errors.Join(err, n.close()) }()
	if err := n.start(ctx); err != nil {
		return r, nil, err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	n.takeovers.database, n.takeovers.log = n.db.url, n.log
	wg.Go(func() { n.takeovers.watch(watching) })

	counts, acked, err := n.disturb(ctx)
	if err != nil {
		return r, nil, err
	}
	n.log.Info("all faults are over and everything is published", "acknowledged", len(acked))
	verdict, err := n.judge(ctx, acked)
	if err != nil {
		return r, nil, err
	}
	took, waiting := n.takeovers.result()
	if waiting > 0 {
		n.problem(fmt.Errorf("%d partitions of killed members were never taken over", waiting))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return newReport(o.seed, counts, verdict, took), n.problems, nil
}

func (n *run) problem(err error) {
	n.log.Error(err.Error())
	n.mu.Lock()
	defer n.mu.Unlock()
	n.problems = append(n.problems, err)
}

// start starts the servers.
func (n *run) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, errors.New("the servers have not started in time"))
	defer cancel()
	free := &ports{}
	if n.db, err = startPostgres(); err != nil {
		return err
	}
	if n.cluster, err = startCluster(n.natsServer, n.dir, free); err != nil {
		return err
	}
	// Until JetStream has a leader nothing can be set up.
	err = eventually(ctx, func() error {
		out, err := exec.CommandContext(ctx, n.lobsink, "setup", "--nats", n.cluster.urls(), "--store", n.db.url,
			"--partitions", "8", "--replicas", fmt.Sprint(clusterServers)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("lobsink setup: %w\n%s", err, out)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := n.cluster.whole(ctx); err != nil {
		return err
	}
	if n.members, err = newMembers(mostMembers, n.lobsink, n.dir, n.cluster, n.db, free, n.problem); err != nil {
		return err
	}
	n.log.Info("the servers run")
	return nil
}

// disturb publishes everything, part of it before there is a member, and the rest
// while there are faults. It returns what was acknowledged.
func (n *run) disturb(ctx context.Context) (counts map[kind]int, acked check.Acked, err error) {
	publishing, cancel := context.WithTimeoutCause(ctx, backlogLimit+n.phase+publishLimit, errors.New("not acknowledged in time"))
	defer cancel()
	p := newProducers(n.options, n.cluster.js)
	published := make(chan error, 1)
	go func() { published <- p.run(publishing) }()
	f := &faults{cluster: n.cluster, db: n.db, members: n.members, takeovers: &n.takeovers, log: n.log}
	err = n.startMembers(ctx, p)
	if err == nil {
		err = f.run(ctx, plan(n.seed, n.faults, n.phase))
	}
	if err != nil {
		cancel()
	}
	if pubErr := <-published; err == nil && ctx.Err() == nil && pubErr != nil {
		n.problem(pubErr)
	}
	return f.counts(), p.acknowledged(), errors.Join(err, ctx.Err())
}

// startMembers starts the first members once there is a backlog for them.
func (n *run) startMembers(ctx context.Context, p *producers) error {
	select {
	case <-p.ready:
	case <-time.After(backlogLimit):
		return errors.New("the backlog was not published in time")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, m := range n.members.all[:firstMembers] {
		if err := n.members.start(m); err != nil {
			return err
		}
	}
	n.log.Info("the members run", "members", firstMembers, "backlog", p.backlog)
	return nil
}

// judge waits until everything is stored, or for long enough, ends the members,
// and compares.
func (n *run) judge(ctx context.Context, acked check.Acked) (*check.Verdict, error) {
	var stream check.Stream
	err := eventually(ctx, func() (err error) {
		call, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		stream, err = check.ReadStream(call, n.cluster.urls(), streamName)
		return err
	})
	if err != nil {
		return nil, err
	}
	settling, cancel := context.WithTimeoutCause(ctx, settleLimit, errors.New("not everything was stored in time"))
	defer cancel()
	err = eventually(settling, func() error {
		behind, example, err := check.Behind(settling, n.db.url, stream)
		if err == nil && behind > 0 {
			err = fmt.Errorf("%d of %d documents are behind, for example %s", behind, len(stream), example)
		}
		return err
	})
	if err != nil {
		n.problem(err)
	}
	if err := n.members.terminate(); err != nil {
		n.problem(err)
	}
	stored, err := check.ReadDatabase(ctx, n.db.url)
	if err != nil {
		return nil, err
	}
	verdict := check.Compare(stream, stored, acked)
	for _, fault := range verdict.Faults {
		n.log.Error(fault)
	}
	if !verdict.OK() {
		err = n.keep(stream, stored)
	}
	return verdict, err
}

// keptDocuments is how many documents that are wrong are kept for a look.
const keptDocuments = 10

// keep writes documents that are not exact to the folder of the run: as they
// are, and as they should be.
func (n *run) keep(stream check.Stream, stored map[string]check.Document) error {
	kept := 0
	for key, fragments := range stream {
		want, list := "", ""
		for _, f := range fragments {
			want += f.Data
			list += fmt.Sprintf("%d %s %d bytes final=%v\n", f.Seq, f.ID, len(f.Data), f.Final)
		}
		if want == stored[key].Text || kept == keptDocuments {
			continue
		}
		kept++
		base := filepath.Join(n.dir, fmt.Sprintf("wrong-%d", kept))
		for suffix, text := range map[string]string{".key": key, ".stored": stored[key].Text, ".want": want, ".fragments": list} {
			if err := os.WriteFile(base+suffix, []byte(text), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// close ends all processes that there still are.
func (n *run) close() (err error) {
	if n.members != nil {
		n.members.close()
	}
	if n.cluster != nil {
		n.cluster.close()
	}
	if n.db != nil {
		err = n.db.close()
	}
	return err
}
