package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/lobsink/lobsink/internal/telemetry"
)

// statusEvery is how often the service manager is told what lobsink waits for.
const statusEvery = 2 * time.Second

// notifySystemd tells the service manager that lobsink has started, what it waits
// for, and, as long as alive returns nil, that the watchdog need not bite. The end
// of ctx is the beginning of the drain. What it returns ends it. Where no service
// manager asks, it does nothing; see sd_notify(3).
func notifySystemd(ctx context.Context, log *slog.Logger, checks func() []telemetry.Check, alive func() error) (stop func()) {
	asked, err := daemon.SdNotify(false, daemon.SdNotifyReady)
	if err != nil {
		log.Warn("the service manager cannot be told that lobsink has started", "err", err)
	}
	if !asked || err != nil {
		return func() {}
	}
	n := &notifier{log: log, checks: checks, alive: alive}
	if n.watchdog, err = daemon.SdWatchdogEnabled(false); err != nil {
		log.Warn("the watchdog of the service manager is not fed", "err", err)
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { n.run(serving, ctx.Done()) })
	return func() {
		cancel()
		wg.Wait()
	}
}

type notifier struct {
	log    *slog.Logger
	checks func() []telemetry.Check
	alive  func() error
	// watchdog is after how long without a sign of life the service manager
	// ends the process; 0: never.
	watchdog time.Duration
	status   string // as it was told last
	starving bool   // the log has that the watchdog is not fed
}

// run tells until ctx ends.
func (n *notifier) run(ctx context.Context, stopping <-chan struct{}) {
	every := statusEvery
	if n.watchdog > 0 {
		every = min(every, n.watchdog/3)
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		n.tell()
		select {
		case <-tick.C:
		case <-stopping:
			stopping = nil
			n.send(daemon.SdNotifyStopping)
		case <-ctx.Done():
			return
		}
	}
}

func (n *notifier) tell() {
	if status := n.waitsFor(); status != n.status {
		n.status = status
		n.send("STATUS=" + status)
	}
	if n.watchdog == 0 {
		return
	}
	if err := n.alive(); err != nil {
		if !n.starving {
			n.log.Error("lobsink does not get on: the service manager will start it again", "err", err)
		}
		n.starving = true
		return
	}
	n.starving = false
	n.send(daemon.SdNotifyWatchdog)
}

// waitsFor is one line for `systemctl status`.
func (n *notifier) waitsFor() string {
	for _, c := range n.checks() {
		if c.Err != nil {
			// One line: the next would be another assignment.
			line, _, _ := strings.Cut(redact(c.Err.Error()), "\n")
			return "not ready: " + c.Name + ": " + line
		}
	}
	return "ready: fragments are taken and stored"
}

// send tells the service manager something. It may be gone: then nobody asks.
func (n *notifier) send(state string) { _, _ = daemon.SdNotify(false, state) }
