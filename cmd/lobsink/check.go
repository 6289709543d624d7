package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/lobwriter"
)

// alarm is the state of a check; its number is the exit code that Nagios expects
// of a plugin (monitoring-plugins.org, development guidelines).
type alarm int

const (
	alarmOK alarm = iota
	alarmWarning
	alarmCritical
	alarmUnknown
)

func (s alarm) String() string {
	return [...]string{"OK", "WARNING", "CRITICAL", "UNKNOWN"}[s]
}

// threshold is when a figure is an alarm: above it. 0: never.
type threshold struct{ warning, critical float64 }

func (t threshold) of(value float64) alarm {
	switch {
	case t.critical > 0 && value > t.critical:
		return alarmCritical
	case t.warning > 0 && value > t.warning:
		return alarmWarning
	}
	return alarmOK
}

// figure is one number that is checked.
type figure struct {
	Name     string   `json:"name"`
	Value    float64  `json:"value"`
	Warning  *float64 `json:"warning"`
	Critical *float64 `json:"critical"`
	unit     string   // of Nagios
	help     string
}

// checkup collects what is found out.
type checkup struct {
	state   alarm
	figures []figure
	words   []string // what is wrong
}

func (c *checkup) raise(s alarm, format string, args ...any) {
	c.state = max(c.state, s)
	c.words = append(c.words, fmt.Sprintf(format, args...))
}

func (c *checkup) add(name, unit, help string, value float64, t threshold) {
	c.figures = append(c.figures, figure{name, value, known(t.warning), known(t.critical), unit, help})
	if s := t.of(value); s != alarmOK {
		c.raise(s, "%s is %s%s", strings.ReplaceAll(name, "_", " "), number64(value), unit)
	}
}

func (a *app) checkCommand() *cobra.Command {
	form := "nagios"
	var lag, deadLetters thresholdFlags
	var oldestWarning, oldestCritical time.Duration
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check everything at once, for a monitoring system",
		Long: `Checks that all partitions are owned and all members ready, how far behind they
are, how long the oldest fragment waits in memory, and how many dead letters
there are. A threshold of 0 is none.

It prints one line and ends as a plugin of Nagios or Icinga does: 0 OK, 1
WARNING, 2 CRITICAL, 3 UNKNOWN. --format json and prometheus print the figures,
the latter for the textfile collector of the node exporter.`,
		Example: `  lobsink check
  lobsink check --lag-critical 100000 --oldest-critical 5m
  lobsink check --format prometheus > /var/lib/node_exporter/lobsink.prom`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := &checkup{}
			if cfg, err := a.load(); err != nil {
				c.raise(alarmUnknown, "%s", redact(err.Error()))
			} else {
				c.run(cmd.Context(), cfg, lag.threshold(), deadLetters.threshold(), threshold{oldestWarning.Seconds(), oldestCritical.Seconds()})
			}
			if err := a.printCheckup(c, form); err != nil {
				return err
			}
			if c.state == alarmOK {
				return nil
			}
			return withCode(int(c.state), errSilent)
		},
	}
	cmd.Flags().Var(&choice{&form, []string{"nagios", "json", "prometheus"}}, "format", "`form` of the result: nagios, json or prometheus")
	lag.add(cmd, "lag", "messages of the stream that are not stored yet", 10_000, 1_000_000)
	deadLetters.add(cmd, "dead-letters", "dead letters", 0, 0)
	cmd.Flags().DurationVar(&oldestWarning, "oldest-warning", time.Minute, "a fragment has waited in memory for longer")
	cmd.Flags().DurationVar(&oldestCritical, "oldest-critical", 10*time.Minute, "the same, critical")
	return cmd
}

// errSilent ends a command whose result has said everything.
var errSilent = errors.New("")

// thresholdFlags are two flags.
type thresholdFlags struct{ warning, critical uint64 }

func (f *thresholdFlags) add(cmd *cobra.Command, name, what string, warning, critical uint64) {
	cmd.Flags().Uint64Var(&f.warning, name+"-warning", warning, "more than so many "+what)
	cmd.Flags().Uint64Var(&f.critical, name+"-critical", critical, "the same, critical")
}

func (f *thresholdFlags) threshold() threshold {
	return threshold{float64(f.warning), float64(f.critical)}
}

func (c *checkup) run(ctx context.Context, cfg *Config, lag, deadLetters, oldest threshold) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	c.database(ctx, cfg, lag)
	nc, err := dialNATS(cfg)
	if err != nil {
		c.raise(alarmCritical, "%s", redact(err.Error()))
		return
	}
	defer nc.Close()
	members, err := askMembers[memberStatus](nc, statusSubject+cfg.Stream, "", memberWait)
	if err != nil {
		c.raise(alarmUnknown, "%s", redact(err.Error()))
		return
	}
	c.members(members, oldest)
	if js, err := openJetStream(nc, cfg); err == nil {
		// A letter has one part 0, and a subject of its own.
		letters := jetstream.WithSubjectFilter("lobsink.dead." + cfg.Stream + ".*.*.*.*.0")
		if s, err := js.Stream(ctx, consumer.DeadStream(cfg.Stream)); err == nil {
			if info, err := s.Info(ctx, letters); err == nil {
				c.add("dead_letters", "", "Dead letters.", float64(len(info.State.Subjects)), deadLetters)
			}
		}
	}
}

// database checks the partitions as the database knows them.
func (c *checkup) database(ctx context.Context, cfg *Config, lag threshold) {
	r, err := openReader(ctx, cfg)
	if err != nil {
		c.raise(alarmCritical, "%s", redact(err.Error()))
		return
	}
	defer func() { _ = r.Close() }() // it has only read
	b, err := r.Binding(ctx)
	if errors.Is(err, lobwriter.ErrNotFound) {
		c.raise(alarmCritical, "nothing has run on this database yet: start lobsink run")
		return
	}
	v := &partitionsView{}
	if err == nil {
		v, err = readPartitions(ctx, cfg, r, b.Partitions)
	}
	if err != nil {
		c.raise(alarmCritical, "%s", redact(err.Error()))
		return
	}
	owned := 0
	for _, p := range v.Partitions {
		if p.Owner != nil {
			owned++
		}
	}
	c.add("partitions", "", "Partitions of the stream.", float64(len(v.Partitions)), threshold{})
	c.add("owned_partitions", "", "Partitions that a member owns.", float64(owned), threshold{})
	if owned < len(v.Partitions) {
		c.raise(alarmCritical, "%d of %s owned", owned, plural(len(v.Partitions), "partition"))
	}
	if v.measure(ctx, cfg, b) != nil {
		return // NATS is checked by itself
	}
	behind := uint64(0)
	for _, p := range v.Partitions {
		behind += *p.Lag
	}
	c.add("lag", "", "Messages of the stream above the checkpoints.", float64(behind), lag)
}

func (c *checkup) members(members []memberStatus, oldest threshold) {
	age, buffered := 0.0, int64(0)
	for _, m := range members {
		if !m.Ready {
			c.raise(alarmWarning, "%s is not ready: %s", m.Host, strings.Join(m.Reasons, "; "))
		}
		for _, p := range m.Partitions {
			age, buffered = max(age, p.Oldest), buffered+p.Bytes
			if p.Reason != nil {
				c.raise(alarmCritical, "partition %d stands still: %s", p.Partition, *p.Reason)
			}
			if p.Paused {
				c.raise(alarmWarning, "partition %d is paused on %s", p.Partition, m.Host)
			}
		}
	}
	if len(members) == 0 {
		c.raise(alarmCritical, "no member answers")
	}
	c.add("members", "", "Members that answer.", float64(len(members)), threshold{})
	c.add("oldest", "s", "For how long the oldest fragment has waited in memory.", age, oldest)
	c.add("buffered", "B", "Memory of what is held.", float64(buffered), threshold{})
}

func (a *app) printCheckup(c *checkup, form string) error {
	switch form {
	case "json":
		return a.printJSON(struct {
			State   string   `json:"state"`
			Reasons []string `json:"reasons"`
			Figures []figure `json:"figures"`
		}{strings.ToLower(c.state.String()), append([]string{}, c.words...), append([]figure{}, c.figures...)})
	case "prometheus":
		return c.prometheus(a.stdout)
	}
	words := strings.Join(c.words, "; ")
	if words == "" {
		words = "all partitions are owned and kept up with"
	}
	var data []string
	for _, f := range c.figures {
		data = append(data, strings.TrimRight(fmt.Sprintf("%s=%s%s;%s;%s", f.Name, number64(f.Value), f.unit, bound(f.Warning), bound(f.Critical)), ";"))
	}
	// The bar parts words from figures.
	_, err := fmt.Fprintf(a.stdout, "LOBSINK %s - %s | %s\n", c.state, strings.NewReplacer("|", "/", "\n", " ").Replace(words), strings.Join(data, " "))
	return err
}

// prometheus prints the figures in the text format of Prometheus.
func (c *checkup) prometheus(w io.Writer) error {
	figures := append(slices.Clone(c.figures), figure{Name: "state", Value: float64(c.state), help: "0 OK, 1 warning, 2 critical, 3 unknown."})
	for _, f := range figures {
		name := "lobsink_check_" + f.Name
		switch f.unit {
		case "s":
			name += "_seconds"
		case "B":
			name += "_bytes"
		}
		if _, err := fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s gauge\n%s %s\n", name, f.help, name, name, number64(f.Value)); err != nil {
			return err
		}
	}
	return nil
}

func bound(v *float64) string {
	if v == nil {
		return ""
	}
	return number64(*v)
}

func number64(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
