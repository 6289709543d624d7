package consumer

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// requestTimeout is the deadline of one request to NATS. It is short: while a
// leader changes, a request may get no answer at all, and the next one does
// (measured: 1.1 to 1.2 s in all, on three servers).
const requestTimeout = 3 * time.Second

// request makes one request, and once more if nobody answered.
func request(ctx context.Context, do func(ctx context.Context) error) error {
	try := func() error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		return do(ctx)
	}
	err := try()
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = try()
	}
	return err
}

// StreamSpec describes a stream to create.
type StreamSpec struct {
	Name string
	// Root is the prefix of its subjects.
	Root string
	// Partitions is the partition count, from 1; fixed for the stream's life.
	Partitions int
	// Replicas is the number of servers that keep it, from 1.
	Replicas int
}

// Config returns the stream's configuration. Nothing in it discards a message:
// a full stream refuses publishers instead.
func (s StreamSpec) Config() jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name:        s.Name,
		Description: "lobsink: fragments of documents",
		Subjects:    []string{s.Root + ".*"},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardNew,
		Storage:     jetstream.FileStorage,
		Replicas:    max(s.Replicas, 1),
		AllowDirect: true,
	}
	if s.Partitions > 1 {
		cfg.SubjectTransform = transform(s.Root, s.Partitions)
	}
	return cfg
}

func transform(root string, partitions int) *jetstream.SubjectTransformConfig {
	return &jetstream.SubjectTransformConfig{
		Source:      root + ".*",
		Destination: fmt.Sprintf("%s.{{partition(%d,1)}}.{{wildcard(1)}}", root, partitions),
	}
}

// CreateStream creates the stream if there is none of that name. An existing
// one is left as it is; see DescribeStream.
func CreateStream(ctx context.Context, js jetstream.JetStream, s StreamSpec) (created bool, err error) {
	return create(ctx, js, s.Config())
}

// DeadStream is the name of the dead-letter stream of a stream.
func DeadStream(stream string) string { return stream + "_DEAD" }

// CreateDeadStream creates the dead-letter stream of a stream if there is none.
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
	if !errors.Is(err, jetstream.ErrStreamNotFound) {
		return false, err
	}
	err = request(ctx, func(ctx context.Context) error {
		_, err := js.CreateStream(ctx, cfg)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return false, nil
	}
	return err == nil, err
}

var partitioned = regexp.MustCompile(`^(.+)\.\{\{\s*partition\(\s*(\d+)\s*,\s*1\s*\)\s*\}\}\.(?:\{\{\s*wildcard\(\s*1\s*\)\s*\}\}|\$1)$`)

// DescribeStream finds out the layout of an existing stream. A stream on which
// the promise cannot be kept is refused with the reason. The warnings are about
// settings that may discard fragments before they are read.
func DescribeStream(info *jetstream.StreamInfo) (Layout, []string, error) {
	c := &info.Config
	for _, r := range []struct {
		broken bool
		why    string
	}{
		{c.Retention != jetstream.LimitsPolicy, fmt.Sprintf("its retention is %s, which deletes messages that are acknowledged: replay and recovery need limits retention", c.Retention)},
		{c.MaxMsgsPerSubject > 0, fmt.Sprintf("max_msgs_per_subject is %d, which deletes fragments out of the middle of documents: set it to -1", c.MaxMsgsPerSubject)},
		{c.AllowMsgTTL || c.SubjectDeleteMarkerTTL > 0, "it allows messages with their own TTL, which deletes fragments out of the middle of documents"},
		{c.Mirror != nil || len(c.Sources) > 0, "it is a mirror or has sources: consume the original"},
		{c.NoAck, "it does not acknowledge publishers"},
		{c.AllowMsgCounter, "it is a counter"},
	} {
		if r.broken {
			return Layout{}, nil, errors.New(r.why)
		}
	}
	if len(c.Subjects) != 1 || !strings.HasSuffix(c.Subjects[0], ".*") {
		return Layout{}, nil, fmt.Errorf("its subjects are %s, lobsink needs exactly one of the form <root>.*", strings.Join(c.Subjects, ", "))
	}
	l := Layout{Root: strings.TrimSuffix(c.Subjects[0], ".*"), Partitions: 1}
	if strings.ContainsAny(l.Root, "*>") {
		return Layout{}, nil, fmt.Errorf("its subject is %s, lobsink needs a root without wildcards", c.Subjects[0])
	}
	if t := c.SubjectTransform; t != nil && (t.Source != "" || t.Destination != "") {
		m := partitioned.FindStringSubmatch(t.Destination)
		if m == nil || m[1] != l.Root || t.Source != l.Root+".*" {
			want := transform(l.Root, 8)
			return Layout{}, nil, fmt.Errorf("its subject transform is %s to %s, lobsink needs none or %s to %s (with any number in place of 8)", t.Source, t.Destination, want.Source, want.Destination)
		}
		n, err := strconv.Atoi(m[2])
		if err != nil || n < 1 {
			return Layout{}, nil, fmt.Errorf("its subject transform has %s partitions", m[2])
		}
		if n == 1 {
			return Layout{}, nil, fmt.Errorf("its subject transform has one partition: remove the transform")
		}
		l.Partitions = n
	}
	return l, warnings(c), nil
}

func warnings(c *jetstream.StreamConfig) []string {
	var w []string
	if c.MaxAge > 0 {
		w = append(w, fmt.Sprintf("the stream discards messages after %s: fragments not stored by then are lost to it; it must be longer than the longest outage and the worst loss of the database", c.MaxAge))
	}
	if c.Discard == jetstream.DiscardOld && (c.MaxMsgs > 0 || c.MaxBytes > 0) {
		w = append(w, "the stream discards its oldest messages when it is full: discard new would refuse publishers instead")
	}
	if c.Storage == jetstream.MemoryStorage {
		w = append(w, "the stream is kept in memory: a restart of the server loses it")
	}
	return slices.Clip(w)
}

// maxPayload returns the largest payload, headers included, that a stream of
// this connection takes.
func maxPayload(nc *nats.Conn, info *jetstream.StreamInfo) int64 {
	limit := nc.MaxPayload()
	if s := int64(info.Config.MaxMsgSize); s > 0 {
		limit = min(limit, s)
	}
	return limit
}
