package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/lobsink/lobsink/consumer"
	"github.com/lobsink/lobsink/internal/telemetry"
)

// Every member is an instance of the NATS micro service "lobsink", so that
// `nats micro info lobsink` shows all of them, and answers on these subjects,
// which end in the name of the stream that it serves. No stream of lobsink has
// subjects that begin so.
const (
	serviceName   = "lobsink"
	statusSubject = "lobsink.member.status."
	flushSubject  = "lobsink.member.flush."
	pauseSubject  = "lobsink.member.pause."
	resumeSubject = "lobsink.member.resume."
)

// memberStatus is what a member answers.
type memberStatus struct {
	Member     string            `json:"member"` // its ID
	Host       string            `json:"host"`
	Version    string            `json:"version"`
	Started    string            `json:"started_at"`
	Ready      bool              `json:"ready"`
	Reasons    []string          `json:"reasons"` // why it is not ready
	Store      string            `json:"store"`
	Partitions []partitionStatus `json:"partitions"`
}

// partitionStatus is a partition of a member.
type partitionStatus struct {
	Partition  int     `json:"partition"`
	Owned      bool    `json:"owned"`
	Paused     bool    `json:"paused"`
	Epoch      *int64  `json:"epoch"`
	Checkpoint *uint64 `json:"checkpoint"`
	Read       *uint64 `json:"read"`
	Documents  int     `json:"open_documents"`
	Bytes      int64   `json:"buffered_bytes"`
	Oldest     float64 `json:"oldest_seconds"`
	Reason     *string `json:"reason"` // why it stands still
}

// pausedAnswer is what a member answers to pause and resume.
type pausedAnswer struct {
	Member string `json:"member"`
	Host   string `json:"host"`
	Paused []int  `json:"paused"`
}

// memberService answers for one member.
type memberService struct {
	cfg      *Config
	consumer *consumer.Config
	control  *consumer.Control
	started  time.Time
	ready    func() []telemetry.Check
}

// serve answers until the function that it returns is called. Without the right
// to subscribe to these subjects lobsink runs all the same.
func (s *memberService) serve(nc *nats.Conn, log *slog.Logger) (stop func(), err error) {
	m := s.consumer.Member
	service, err := micro.AddService(nc, micro.Config{
		Name: serviceName, Version: semanticVersion(m.Version),
		Description:        "writes fragments of stream " + s.cfg.Stream + " into documents",
		Metadata:           map[string]string{"member": m.ID, "host": m.Name, "stream": s.cfg.Stream, "store": s.cfg.driver()},
		QueueGroupDisabled: true,
		StatsHandler:       func(*micro.Endpoint) any { return s.status() },
		ErrorHandler: func(_ micro.Service, e *micro.NATSError) {
			log.Warn("NATS micro service", "subject", e.Subject, "err", e.Description)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("NATS micro service: %w", err)
	}
	stop = func() { _ = service.Stop() } // fails only when the connection is gone
	for name, e := range map[string]struct {
		subject string
		answer  func(partitions []int) any
	}{
		"status": {statusSubject, func([]int) any { return s.status() }},
		"flush":  {flushSubject, func([]int) any { s.control.Flush(); return s.status() }},
		"pause":  {pauseSubject, func(p []int) any { return s.paused(s.control.Pause(p...)) }},
		"resume": {resumeSubject, func(p []int) any { return s.paused(s.control.Resume(p...)) }},
	} {
		handler := micro.HandlerFunc(func(r micro.Request) {
			partitions, err := parsePartitions(string(r.Data()))
			if err != nil {
				_ = r.Error("400", err.Error(), nil)
				return
			}
			if name != "status" {
				log.Info("asked by an operator", "request", name, "partitions", partitions)
			}
			_ = r.RespondJSON(e.answer(partitions)) // who asked asks again
		})
		if err := service.AddEndpoint(name, handler, micro.WithEndpointSubject(e.subject+s.cfg.Stream)); err != nil {
			stop()
			return nil, fmt.Errorf("NATS micro service: %w", err)
		}
	}
	return stop, nil
}

func (s *memberService) status() memberStatus {
	m := s.consumer.Member
	out := memberStatus{
		Member: m.ID, Host: m.Name, Version: m.Version, Started: timestamp(s.started.UnixNano()), Ready: true,
		Reasons: []string{}, Store: s.cfg.driver(), Partitions: []partitionStatus{},
	}
	for _, c := range s.ready() {
		if c.Err != nil {
			out.Ready = false
			out.Reasons = append(out.Reasons, redact(c.Name+": "+c.Err.Error()))
		}
	}
	for _, h := range s.consumer.Status.Holdings() {
		p := partitionStatus{
			Partition: h.Partition, Owned: h.Owned, Paused: h.Paused,
			Epoch: known(h.Epoch), Checkpoint: known(h.Checkpoint), Read: known(h.Read),
			Documents: h.Documents, Bytes: h.Bytes, Oldest: h.Age.Seconds(),
		}
		if h.Err != nil {
			reason := redact(h.Err.Error())
			p.Reason = &reason
		}
		out.Partitions = append(out.Partitions, p)
	}
	return out
}

func (s *memberService) paused(partitions []int) pausedAnswer {
	m := s.consumer.Member
	return pausedAnswer{Member: m.ID, Host: m.Name, Paused: append([]int{}, partitions...)}
}

// parsePartitions reads numbers with commas between them; "" is none.
func parsePartitions(text string) ([]int, error) {
	var out []int
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("%q is no number of a partition", part)
		}
		out = append(out, n)
	}
	return out, nil
}

var semantic = regexp.MustCompile(`^v?(\d+\.\d+\.\d+(?:[-+][0-9A-Za-z.+-]+)?)$`)

// semanticVersion returns a version as the micro service wants it.
func semanticVersion(version string) string {
	if m := semantic.FindStringSubmatch(version); m != nil {
		return m[1]
	}
	return "0.0.0-devel"
}

// memberSilence is how long the answers of members may lie apart.
const memberSilence = 300 * time.Millisecond

// askMembers asks all members that serve a stream, and decodes their answers. It
// waits so long for the first one.
func askMembers[A any](nc *nats.Conn, subject, request string, wait time.Duration) ([]A, error) {
	inbox := nc.NewInbox()
	sub, err := nc.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only when the connection is gone
	if err := nc.PublishRequest(subject, inbox, []byte(request)); err != nil {
		return nil, err
	}
	var out []A
	for ; ; wait = memberSilence {
		m, err := sub.NextMsg(wait)
		switch {
		case err != nil && (len(out) > 0 || !nc.IsConnected()):
			return out, nil
		case err != nil, len(m.Data) == 0 && m.Header.Get("Status") == "503":
			return nil, nil // nobody
		}
		if text := m.Header.Get(micro.ErrorHeader); text != "" {
			return out, failed("%s", text)
		}
		var a A
		if err := json.Unmarshal(m.Data, &a); err != nil {
			return out, fmt.Errorf("a member answers what this version does not understand: %w", err)
		}
		out = append(out, a)
	}
}
