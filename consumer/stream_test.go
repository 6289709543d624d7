package consumer

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/internal/embednats"
)

func described(t *testing.T, js jetstream.JetStream, name string) (Layout, []string, error) {
	t.Helper()
	s, err := js.Stream(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return DescribeStream(s.CachedInfo())
}

func TestCreateStream(t *testing.T) {
	_, js := server(t, embednats.Options{})
	for _, spec := range []StreamSpec{
		{Name: "ONE", Root: "one", Partitions: 1},
		{Name: "EIGHT", Root: "a.b.eight", Partitions: 8, MaxAge: time.Hour, MaxBytes: 1 << 20, Duplicates: time.Minute},
	} {
		for _, first := range []bool{true, false} {
			if created, err := CreateStream(t.Context(), js, spec); err != nil || created != first {
				t.Errorf("%s: created is %v, %v; want %v", spec.Name, created, err, first)
			}
		}
		l, warnings, err := described(t, js, spec.Name)
		if want := (Layout{Root: spec.Root, Partitions: spec.Partitions}); err != nil || l != want {
			t.Errorf("%s is described as %+v, %v; want %+v", spec.Name, l, err, want)
		}
		if n := len(warnings); (n > 0) != (spec.MaxAge > 0) {
			t.Errorf("%s: warnings %q", spec.Name, warnings)
		}
	}

	// An existing stream is not changed.
	if created, err := CreateStream(t.Context(), js, StreamSpec{Name: "ONE", Root: "other", Partitions: 4}); err != nil || created {
		t.Errorf("created is %v, %v", created, err)
	}
	if l, _, err := described(t, js, "ONE"); err != nil || l.Root != "one" || l.Partitions != 1 {
		t.Errorf("the stream was changed to %+v, %v", l, err)
	}

	// A full stream refuses producers and keeps what it has.
	for range 20 {
		_, err := js.Publish(t.Context(), "a.b.eight.k", make([]byte, 100<<10))
		if err != nil && !isCode(err, 10077) {
			t.Fatal(err)
		}
	}
	s, err := js.Stream(t.Context(), "EIGHT")
	if err != nil {
		t.Fatal(err)
	}
	if st := s.CachedInfo().State; st.FirstSeq != 1 || st.Msgs == 0 || st.Msgs >= 20 {
		t.Errorf("the full stream has messages from %d, %d of 20", st.FirstSeq, st.Msgs)
	}
}

func TestCreateStreamRefused(t *testing.T) {
	_, js := server(t, embednats.Options{})
	if _, err := CreateStream(t.Context(), js, StreamSpec{Name: "A", Root: "a", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	for words, spec := range map[string]StreamSpec{
		"a.* belongs to another stream already; choose another root": {Name: "B", Root: "a", Partitions: 2},
		"partitions is 0":            {Name: "C", Root: "c"},
		`root "" is not a subject`:   {Name: "C", Partitions: 1},
		`root "c..d" is not`:         {Name: "C", Root: "c..d", Partitions: 1},
		`root "c.*" is not`:          {Name: "C", Root: "c.*", Partitions: 1},
		`root "c d" is not`:          {Name: "C", Root: "c d", Partitions: 1},
		`root "$JS" belongs to NATS`: {Name: "C", Root: "$JS", Partitions: 1},
	} {
		if created, err := CreateStream(t.Context(), js, spec); err == nil || created || !strings.Contains(err.Error(), words) {
			t.Errorf("%+v: created is %v, %v; want an error with %q", spec, created, err, words)
		}
	}
}

func TestCreateDeadStream(t *testing.T) {
	_, js := server(t, embednats.Options{})
	for _, first := range []bool{true, false} {
		if created, err := CreateDeadStream(t.Context(), js, "FRAGMENTS", 1); err != nil || created != first {
			t.Errorf("created is %v, %v; want %v", created, err, first)
		}
	}
	s, err := js.Stream(t.Context(), "FRAGMENTS_DEAD")
	if err != nil {
		t.Fatal(err)
	}
	c := s.CachedInfo().Config
	if c.Subjects[0] != "lobsink.dead.FRAGMENTS.>" || c.Discard != jetstream.DiscardNew || c.MaxAge != 0 || c.Storage != jetstream.FileStorage {
		t.Errorf("the dead-letter stream may lose letters: %+v", c)
	}
}

// TestDescribeStream: streams that the server accepts and lobsink does not.
func TestDescribeStream(t *testing.T) {
	_, js := server(t, embednats.Options{})
	if _, err := CreateStream(t.Context(), js, StreamSpec{Name: "ORIGIN", Root: "origin", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	moved := func(to string) func(*jetstream.StreamConfig) {
		return func(c *jetstream.StreamConfig) {
			c.SubjectTransform = &jetstream.SubjectTransformConfig{Source: "x.*", Destination: to}
		}
	}
	refusedIf := map[string]struct {
		edit  func(*jetstream.StreamConfig)
		words []string
	}{
		"work queue":        {func(c *jetstream.StreamConfig) { c.Retention = jetstream.WorkQueuePolicy }, []string{"retention is not limits", "another name"}},
		"interest":          {func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, []string{"retention is not limits"}},
		"two subjects":      {func(c *jetstream.StreamConfig) { c.Subjects = []string{"x.*", "y.*"} }, []string{`"x.*" "y.*"`, "<root>.*"}},
		"deep subjects":     {func(c *jetstream.StreamConfig) { c.Subjects = []string{"x.>"} }, []string{"<root>.*"}},
		"wild root":         {func(c *jetstream.StreamConfig) { c.Subjects = []string{"x.*.*"} }, []string{`"x.*.*"`}},
		"no subjects":       {func(c *jetstream.StreamConfig) { c.Subjects = nil }, []string{"<root>.*"}}, // the server takes its name
		"per subject":       {func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 5 }, []string{"per subject", "set max_msgs_per_subject to -1"}},
		"message TTL":       {func(c *jetstream.StreamConfig) { c.AllowMsgTTL = true }, []string{"allow_msg_ttl"}},
		"delete marker":     {func(c *jetstream.StreamConfig) { c.SubjectDeleteMarkerTTL, c.AllowRollup = time.Minute, true }, []string{"subject_delete_marker_ttl"}},
		"rollup":            {func(c *jetstream.StreamConfig) { c.AllowRollup = true }, []string{"set allow_rollup_hdrs to false"}},
		"counter":           {func(c *jetstream.StreamConfig) { c.AllowMsgCounter = true }, []string{"allow_msg_counter"}},
		"no ack":            {func(c *jetstream.StreamConfig) { c.NoAck = true }, []string{"set no_ack to false"}},
		"mirror":            {func(c *jetstream.StreamConfig) { c.Subjects, c.Mirror = nil, &jetstream.StreamSource{Name: "ORIGIN"} }, []string{"mirror", "consume the stream that it mirrors"}},
		"sources":           {func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: "ORIGIN"}} }, []string{"has sources"}},
		"consumer limits":   {func(c *jetstream.StreamConfig) { c.ConsumerLimits.MaxAckPending = 10 }, []string{"remove consumer_limits"}},
		"consumers go":      {func(c *jetstream.StreamConfig) { c.ConsumerLimits.InactiveThreshold = time.Hour }, []string{"remove consumer_limits"}},
		"other transform":   {moved("y.{{wildcard(1)}}"), []string{`"x.*" to "y.{{wildcard(1)}}"`, `"x.{{partition(8,1)}}.{{wildcard(1)}}"`}},
		"other root":        {moved("y.{{partition(8,1)}}.{{wildcard(1)}}"), []string{"subject transform"}},
		"partition behind":  {moved("x.{{wildcard(1)}}.{{partition(8,1)}}"), []string{"subject transform"}},
		"one partition":     {moved("x.{{partition(1,1)}}.{{wildcard(1)}}"), []string{"one partition needs no transform"}},
		"partition of none": {moved("x.{{partition(8)}}.{{wildcard(1)}}"), []string{"subject transform"}},
	}
	for name, c := range refusedIf {
		t.Run(name, func(t *testing.T) {
			info := made(t, js, c.edit)
			l, _, err := DescribeStream(info)
			if err == nil {
				t.Fatalf("accepted as %+v", l)
			}
			for _, w := range c.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not say %q", err, w)
				}
			}
		})
	}

	acceptedWith := map[string]struct {
		edit       func(*jetstream.StreamConfig)
		partitions int
		warning    string
	}{
		"plain": {func(*jetstream.StreamConfig) {}, 1, ""},
		"republish": {func(c *jetstream.StreamConfig) {
			c.RePublish = &jetstream.RePublish{Source: ">", Destination: "copy.>"}
		}, 1, ""},
		"transform":       {moved("x.{{partition(12,1)}}.{{wildcard(1)}}"), 12, ""},
		"other spelling":  {moved("x.{{ Partition( 12, 1 ) }}.$1"), 12, ""},
		"age":             {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, 1, "after 1h0m0s"},
		"bytes":           {func(c *jetstream.StreamConfig) { c.MaxBytes = 1000 }, 1, "above 1000 bytes"},
		"count":           {func(c *jetstream.StreamConfig) { c.MaxMsgs = 1000 }, 1, "above 1000 messages"},
		"refuses at most": {func(c *jetstream.StreamConfig) { c.MaxMsgs, c.Discard = 1000, jetstream.DiscardNew }, 1, ""},
		"memory":          {func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, 1, "kept in memory"},
		"async":           {func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode }, 1, "persist_mode async"},
	}
	for name, c := range acceptedWith {
		t.Run(name, func(t *testing.T) {
			l, warnings, err := DescribeStream(made(t, js, c.edit))
			if err != nil || l != (Layout{Root: "x", Partitions: c.partitions}) {
				t.Fatalf("described as %+v, %v", l, err)
			}
			if c.warning == "" && len(warnings) > 0 || c.warning != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], c.warning)) {
				t.Errorf("warnings %q, want one with %q", warnings, c.warning)
			}
		})
	}

	t.Run("sealed", func(t *testing.T) {
		info := made(t, js, func(*jetstream.StreamConfig) {})
		info.Config.Sealed = true
		if _, err := js.UpdateStream(t.Context(), info.Config); err != nil {
			t.Fatal(err)
		}
		_, warnings, err := described(t, js, "X")
		if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "sealed") {
			t.Errorf("warnings %q, %v", warnings, err)
		}
		if _, err := js.CreateConsumer(t.Context(), "X", jetstream.ConsumerConfig{Durable: "D"}); err != nil {
			t.Errorf("a sealed stream cannot be read: %v", err)
		}
	})
}

// made creates stream X anew with edited settings.
func made(t *testing.T, js jetstream.JetStream, edit func(*jetstream.StreamConfig)) *jetstream.StreamInfo {
	t.Helper()
	if err := js.DeleteStream(t.Context(), "X"); err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Fatal(err)
	}
	cfg := jetstream.StreamConfig{Name: "X", Subjects: []string{"x.*"}}
	edit(&cfg)
	s, err := js.CreateStream(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s.CachedInfo()
}

func TestRequest(t *testing.T) {
	notFound := jetstream.ErrStreamNotFound
	for _, c := range []struct {
		name    string
		answers []error
		want    error
		tries   int
	}{
		{"answered", []error{nil}, nil, 1},
		{"refused", []error{notFound, nil}, notFound, 1},
		{"swallowed once", []error{context.DeadlineExceeded, nil}, nil, 2},
		{"no leader", []error{&jetstream.APIError{ErrorCode: 10008}, nats.ErrNoResponders, nil}, nil, 3},
		{"never", []error{nats.ErrNoResponders, nats.ErrNoResponders, nats.ErrNoResponders, nil}, nats.ErrNoResponders, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			tries := 0
			err := request(t.Context(), func(ctx context.Context) error {
				if _, ok := ctx.Deadline(); !ok {
					t.Error("a request without a deadline")
				}
				tries++
				return c.answers[tries-1]
			})
			if !errors.Is(err, c.want) || tries != c.tries {
				t.Errorf("%d tries, %v; want %d, %v", tries, err, c.tries, c.want)
			}
		})
	}
	t.Run("stopped", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		tries := 0
		err := request(ctx, func(ctx context.Context) error { tries++; return nats.ErrNoResponders })
		if err == nil || tries != 1 {
			t.Errorf("%d tries, %v", tries, err)
		}
	})
}
