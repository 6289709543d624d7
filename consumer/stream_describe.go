package consumer

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
)

// partitioned is the destination of our subject transform, in any spelling that
// the server takes (nats-server, server/subject_transform.go).
var partitioned = regexp.MustCompile(`^(.+)\.\{\{\s*[pP]artition\s*\(\s*(\d+)\s*,\s*1\s*\)\s*\}\}\.(?:\{\{\s*[wW]ildcard\s*\(\s*1\s*\)\s*\}\}|\$1)$`)

// DescribeStream finds out the layout of an existing stream. A stream on which
// documents could lose fragments unnoticed is refused; the error says why and
// what to do. The warnings are about settings that lose fragments when lobsink
// or the database is away for long.
func DescribeStream(info *jetstream.StreamInfo) (Layout, []string, error) {
	c := &info.Config
	for _, r := range refusals {
		if r.refused(c) {
			return Layout{}, nil, errors.New(r.why)
		}
	}
	if len(c.Subjects) != 1 || !strings.HasSuffix(c.Subjects[0], ".*") {
		return Layout{}, nil, fmt.Errorf("its subjects are %q; lobsink needs exactly one, of the form <root>.*: edit them, or let lobsink setup create a stream of another name", c.Subjects)
	}
	l := Layout{Root: strings.TrimSuffix(c.Subjects[0], ".*"), Partitions: 1}
	if err := checkRoot(l.Root); err != nil {
		return Layout{}, nil, fmt.Errorf("its subject is %q: %w", c.Subjects[0], err)
	}
	if t := c.SubjectTransform; t != nil && (t.Source != "" || t.Destination != "") {
		n, err := partitionsOf(l.Root, t)
		if err != nil {
			return Layout{}, nil, err
		}
		l.Partitions = n
	}
	return l, warnings(c), nil
}

// partitionsOf returns the partition count of a transform.
func partitionsOf(root string, t *jetstream.SubjectTransformConfig) (int, error) {
	want := transform(root, 8)
	m := partitioned.FindStringSubmatch(t.Destination)
	if m == nil || m[1] != root || t.Source != want.Source {
		return 0, fmt.Errorf("its subject transform is %q to %q; lobsink needs none, or %q to %q with any number from 2 in place of 8: a transform cannot be changed under stored messages, so let lobsink setup create a stream of another name",
			t.Source, t.Destination, want.Source, want.Destination)
	}
	n, err := strconv.Atoi(m[2])
	if err != nil || n < 2 {
		return 0, fmt.Errorf("its subject transform has %s partitions; one partition needs no transform: let lobsink setup create a stream of another name", m[2])
	}
	return n, nil
}

// refusals are the settings under which the promise cannot be kept.
var refusals = []struct {
	refused func(*jetstream.StreamConfig) bool
	why     string
}{
	{func(c *jetstream.StreamConfig) bool { return c.Retention != jetstream.LimitsPolicy },
		"its retention is not limits: work-queue and interest retention delete what is acknowledged, and then neither replay nor a restored database finds it; a retention policy cannot be changed, so let lobsink setup create a stream of another name"},
	{func(c *jetstream.StreamConfig) bool { return c.MaxMsgsPerSubject > 0 },
		"it has a limit of messages per subject, which deletes fragments out of the middle of documents: set max_msgs_per_subject to -1"},
	{func(c *jetstream.StreamConfig) bool { return c.AllowMsgTTL || c.SubjectDeleteMarkerTTL > 0 },
		"it allows a TTL per message (allow_msg_ttl, subject_delete_marker_ttl), which deletes fragments out of the middle of documents; the setting cannot be taken back, so let lobsink setup create a stream of another name"},
	{func(c *jetstream.StreamConfig) bool { return c.AllowRollup },
		"it allows rollups, with which one message deletes a document's earlier fragments: set allow_rollup_hdrs to false"},
	{func(c *jetstream.StreamConfig) bool { return c.AllowMsgCounter || c.AllowMsgSchedules },
		"it holds counters or schedules (allow_msg_counter, allow_msg_schedules), whose messages are not what was published; let lobsink setup create a stream of another name"},
	{func(c *jetstream.StreamConfig) bool { return c.Mirror != nil },
		"it is a mirror, which may be filled again with other messages under the same numbers: consume the stream that it mirrors"},
	{func(c *jetstream.StreamConfig) bool { return len(c.Sources) > 0 },
		"it has sources, whose messages pass by its subjects and its subject transform: consume the sources themselves, or republish from them"},
	{func(c *jetstream.StreamConfig) bool { return c.NoAck },
		"it does not acknowledge (no_ack), so that producers cannot know what was stored: set no_ack to false"},
	{func(c *jetstream.StreamConfig) bool {
		return c.ConsumerLimits.MaxAckPending > 0 || c.ConsumerLimits.InactiveThreshold > 0
	},
		"it limits its consumers (consumer_limits), but lobsink's have no limit of pending acknowledgements and stay while lobsink is away: remove consumer_limits"},
}

// warnings says what may lose fragments although the stream is accepted.
func warnings(c *jetstream.StreamConfig) []string {
	var w []string
	if c.MaxAge > 0 {
		w = append(w, fmt.Sprintf("the stream discards messages after %s, read or not: max_age must be longer than the longest time that lobsink or the database may be away, and than the age of the backup that the database may be restored from", c.MaxAge))
	}
	if c.Discard == jetstream.DiscardOld {
		const old = "the stream discards its oldest messages, read or not, above %d %s: set its discard policy to new, so that producers are refused instead"
		if c.MaxBytes > 0 {
			w = append(w, fmt.Sprintf(old, c.MaxBytes, "bytes"))
		}
		if c.MaxMsgs > 0 {
			w = append(w, fmt.Sprintf(old, c.MaxMsgs, "messages"))
		}
	}
	if c.Storage == jetstream.MemoryStorage {
		w = append(w, "the stream is kept in memory: a restart of its servers loses what is not stored yet; only a new stream can be kept in files")
	}
	if c.PersistMode == jetstream.AsyncPersistMode {
		w = append(w, "the stream acknowledges producers before it has written (persist_mode async): a crash of the server loses acknowledged fragments; only a new stream can have another mode")
	}
	if c.Sealed {
		w = append(w, "the stream is sealed: it takes no new fragments")
	}
	return w
}
