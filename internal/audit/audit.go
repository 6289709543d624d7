// Package audit keeps the commands of operators in a stream of their own, since a
// database that is restored from a backup has lost what they did.
package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Stream is the name of the audit stream of a stream.
func Stream(stream string) string { return stream + "_AUDIT" }

// Subject is the subject of its records.
func Subject(stream string) string { return "lobsink.audit." + stream }

// Stage says when a record was written.
type Stage string

// The stages of a command.
const (
	Begin Stage = "begin" // before it changed anything
	End   Stage = "end"   // after it
)

// Record is one entry: a command that begins, or how it ended.
type Record struct {
	// ID is the same in both records of a command.
	ID    string    `json:"id"`
	Stage Stage     `json:"stage"`
	Time  time.Time `json:"time"`
	// Command is its words, such as "dlq requeue"; Arguments are as they were
	// given.
	Command   string   `json:"command"`
	Arguments []string `json:"arguments"`
	User      string   `json:"user"`
	Host      string   `json:"host"`
	Version   string   `json:"version"`
	// Result is "ok" or the error, at the end; Detail is what the command says of
	// its work.
	Result string `json:"result,omitempty"`
	Detail any    `json:"detail,omitempty"`
}

// Log writes records.
type Log struct {
	js     jetstream.JetStream
	stream string
}

// timeout is for one record.
const timeout = 5 * time.Second

// Open opens the audit stream of a stream, and makes it if there is none. It keeps
// records until somebody deletes them.
func Open(ctx context.Context, js jetstream.JetStream, stream string) (*Log, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err := js.Stream(ctx, Stream(stream))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		_, err = js.CreateStream(ctx, jetstream.StreamConfig{
			Name:        Stream(stream),
			Description: "lobsink: the commands of operators",
			Subjects:    []string{Subject(stream)},
			Retention:   jetstream.LimitsPolicy,
			Discard:     jetstream.DiscardNew,
			Storage:     jetstream.FileStorage,
			Replicas:    replicas(ctx, js, stream),
			AllowDirect: true,
		})
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			err = nil
		}
	}
	if err != nil {
		return nil, fmt.Errorf("audit stream %s: %w", Stream(stream), err)
	}
	return &Log{js: js, stream: stream}, nil
}

// replicas are as many as the stream itself has.
func replicas(ctx context.Context, js jetstream.JetStream, stream string) int {
	s, err := js.Stream(ctx, stream)
	if err != nil {
		return 1
	}
	return s.CachedInfo().Config.Replicas
}

// Write stores a record and has it confirmed.
func (l *Log) Write(ctx context.Context, r Record) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if _, err := l.js.Publish(ctx, Subject(l.stream), text, jetstream.WithMsgID(r.ID+":"+string(r.Stage))); err != nil {
		return fmt.Errorf("audit stream %s: %w", Stream(l.stream), err)
	}
	return nil
}
