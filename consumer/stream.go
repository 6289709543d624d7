package consumer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// requestTimeout is the deadline of one request to NATS. It is short: while a
// leader changes, a request may get no answer at all, and the next one does
// (measured: 1.1 to 1.2 s in all, on three servers).
const requestTimeout = 3 * time.Second

// requestTries and requestPause bound a whole request to about 9 s.
const (
	requestTries = 3
	requestPause = 250 * time.Millisecond
)

// jsClusterNotAvailable is "JetStream system temporarily unavailable"
// (nats-server, server/errors.json, JSClusterNotAvailErr).
const jsClusterNotAvailable jetstream.ErrorCode = 10008

// request makes a request, and makes it again when nobody answered or JetStream
// has no leader. What do does must bear repetition.
func request(ctx context.Context, do func(ctx context.Context) error) error {
	for try := 1; ; try++ {
		call, cancel := context.WithTimeout(ctx, requestTimeout)
		err := do(call)
		cancel()
		if err == nil || try == requestTries || !unanswered(err) {
			return err
		}
		select {
		case <-time.After(requestPause):
		case <-ctx.Done():
			return err
		}
	}
}

func unanswered(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
		isCode(err, jsClusterNotAvailable)
}

// isCode reports whether err is an answer of JetStream with one of the codes.
func isCode(err error, codes ...jetstream.ErrorCode) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	for _, c := range codes {
		if api.ErrorCode == c {
			return true
		}
	}
	return false
}

// StreamSpec describes a stream to create.
type StreamSpec struct {
	Name string
	// Root is what its subjects begin with: one or more tokens.
	Root string
	// Partitions is the number of partitions, from 1. It is fixed for the life
	// of the stream: another number moves keys to other partitions.
	Partitions int
	// Replicas is the number of servers that keep the stream, from 1; 0 is 1.
	Replicas int
	// MaxAge is how long the stream keeps a message; 0: for ever. Whatever it
	// discards can not be read again when the database loses commits.
	MaxAge time.Duration
	// MaxBytes is the most bytes that the stream keeps; 0: what the server
	// has. A full stream refuses publishers and discards nothing.
	MaxBytes int64
	// Duplicates is how long the server remembers Nats-Msg-Id; 0: its default
	// of 2 minutes.
	Duplicates time.Duration
}

// Config returns the configuration of the stream. The discard policy is "new":
// the default, "old", would delete fragments that nobody has read.
func (s StreamSpec) Config() jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name:        s.Name,
		Description: "lobsink: fragments of documents",
		Subjects:    []string{Layout{Root: s.Root}.Subject("*")},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Storage:     jetstream.FileStorage,
		Replicas:    max(s.Replicas, 1),
		MaxAge:      s.MaxAge,
		MaxBytes:    s.MaxBytes,
		Duplicates:  s.Duplicates,
		AllowDirect: true,
	}
	if s.Partitions > 1 {
		cfg.SubjectTransform = transform(s.Root, s.Partitions)
	}
	return cfg
}

func (s StreamSpec) validate() error {
	if err := checkRoot(s.Root); err != nil {
		return err
	}
	if s.Partitions < 1 {
		return fmt.Errorf("stream %s: partitions is %d; it must be at least 1", s.Name, s.Partitions)
	}
	return nil
}

func checkRoot(root string) error {
	for _, token := range strings.Split(root, ".") {
		if token == "" || strings.ContainsAny(token, "*> \t\r\n\x00") {
			return fmt.Errorf("root %q is not a subject prefix; write tokens without blanks, *, or >, separated by single dots, such as fragments", root)
		}
	}
	if strings.HasPrefix(root, "$") || strings.HasPrefix(root, "_INBOX") {
		return fmt.Errorf("root %q belongs to NATS itself; choose another one", root)
	}
	return nil
}

func transform(root string, partitions int) *jetstream.SubjectTransformConfig {
	return &jetstream.SubjectTransformConfig{
		Source:      root + ".*",
		Destination: fmt.Sprintf("%s.{{partition(%d,1)}}.{{wildcard(1)}}", root, partitions),
	}
}

// CreateStream creates the stream if there is none of that name. An existing
// one is left as it is, whatever its settings; see DescribeStream.
func CreateStream(ctx context.Context, js jetstream.JetStream, s StreamSpec) (created bool, err error) {
	if err := s.validate(); err != nil {
		return false, err
	}
	return create(ctx, js, s.Config())
}

// DeadStream is the name of the dead-letter stream of a stream.
func DeadStream(stream string) string { return stream + "_DEAD" }

// CreateDeadStream creates the dead-letter stream of a stream if there is none.
// It keeps letters until somebody deletes them.
func CreateDeadStream(ctx context.Context, js jetstream.JetStream, stream string, replicas int) (created bool, err error) {
	return create(ctx, js, jetstream.StreamConfig{
		Name:        DeadStream(stream),
		Description: "lobsink: fragments that could not be stored, with the reason",
		Subjects:    []string{deadRoot(stream) + ".>"},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Storage:     jetstream.FileStorage,
		Replicas:    max(replicas, 1),
		AllowDirect: true,
	})
}

func create(ctx context.Context, js jetstream.JetStream, cfg jetstream.StreamConfig) (bool, error) {
	err := request(ctx, func(ctx context.Context) error {
		_, err := js.Stream(ctx, cfg.Name)
		return err
	})
	if err == nil {
		return false, nil
	}
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, fmt.Errorf("stream %s: %w", cfg.Name, err)
	}
	// The server takes a second create of the same configuration for the first
	// one, so a lost answer does no harm.
	err = request(ctx, func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, cfg)
		return err
	})
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, jetstream.ErrStreamNameAlreadyInUse):
		return false, nil
	case isCode(err, jsSubjectOverlap):
		return false, fmt.Errorf("stream %s: %s belongs to another stream already; choose another root, or the name of that stream (%w)", cfg.Name, cfg.Subjects[0], err)
	}
	return false, fmt.Errorf("stream %s: %w", cfg.Name, err)
}

// jsSubjectOverlap is "subjects overlap with an existing stream" (nats-server,
// server/errors.json, JSStreamSubjectOverlapErr).
const jsSubjectOverlap jetstream.ErrorCode = 10065

// maxPayload returns the largest message, headers included, that a stream takes
// on this connection.
func maxPayload(nc *nats.Conn, info *jetstream.StreamInfo) int64 {
	limit := nc.MaxPayload()
	if s := int64(info.Config.MaxMsgSize); s > 0 {
		limit = min(limit, s)
	}
	return limit
}
