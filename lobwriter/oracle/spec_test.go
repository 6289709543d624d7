package oracle

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lobsink/lobsink/deploy"
	"github.com/lobsink/lobsink/lobwriter"
)

// parameter is one of a procedure, as the specification has it or as a call binds
// it: name, IN or OUT, type.
type parameter struct{ name, mode, of string }

func (p parameter) String() string { return p.name + " " + p.mode + " " + p.of }

var (
	procedure = regexp.MustCompile(`(?s)PROCEDURE (\w+)\((.*?)\);`)
	declared  = regexp.MustCompile(`^(\w+)\s+(IN|OUT)\s+(\w+)`)
	called    = regexp.MustCompile(`(?s)^BEGIN lobsink_v1\.(\w+)\((.*)\); END;$`)
)

// specification reads the parameters of the package's procedures.
func specification(t *testing.T) map[string][]parameter {
	t.Helper()
	text, err := fs.ReadFile(deploy.Oracle(), "00002_lobsink_v1.sql")
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "--")
		code.WriteString(line + "\n")
	}
	all := map[string][]parameter{}
	for _, p := range procedure.FindAllStringSubmatch(code.String(), -1) {
		for part := range strings.SplitSeq(p[2], ",") {
			d := declared.FindStringSubmatch(strings.TrimSpace(part))
			if d == nil {
				t.Fatalf("%s: %q is not understood", p[1], part)
			}
			all[p[1]] = append(all[p[1]], parameter{d[1], d[2], d[3]})
		}
	}
	if len(all) < 10 {
		t.Fatalf("%d procedures", len(all))
	}
	return all
}

// recorder is a driver that notes what is called, and answers nothing.
type recorder struct {
	calls map[string][]parameter
}

func (r *recorder) Connect(context.Context) (driver.Conn, error) {
	return &session{driverConn: &recorded{r: r}, closed: func() {}}, nil
}
func (r *recorder) Driver() driver.Driver { return nil }

type recorded struct{ r *recorder }

func (c *recorded) Prepare(string) (driver.Stmt, error)                          { return nil, errors.ErrUnsupported }
func (c *recorded) Close() error                                                 { return nil }
func (c *recorded) Begin() (driver.Tx, error)                                    { return nil, errors.ErrUnsupported }
func (c *recorded) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c, nil }
func (c *recorded) Commit() error                                                { return nil }
func (c *recorded) Rollback() error                                              { return nil }
func (c *recorded) Ping(context.Context) error                                   { return nil }
func (c *recorded) ResetSession(context.Context) error                           { return nil }
func (c *recorded) IsValid() bool                                                { return true }
func (c *recorded) CheckNamedValue(nv *driver.NamedValue) error                  { return nil }
func (c *recorded) PrepareContext(_ context.Context, text string) (driver.Stmt, error) {
	return &recordedCall{c.r, text}, nil
}

type recordedCall struct {
	r    *recorder
	text string
}

func (s *recordedCall) Close() error                               { return nil }
func (s *recordedCall) NumInput() int                              { return -1 }
func (s *recordedCall) Exec([]driver.Value) (driver.Result, error) { return nil, errors.ErrUnsupported }
func (s *recordedCall) Query([]driver.Value) (driver.Rows, error)  { return nil, errors.ErrUnsupported }
func (s *recordedCall) CheckNamedValue(nv *driver.NamedValue) error {
	if reflect.TypeOf(nv.Value).Kind() == reflect.Func {
		return driver.ErrRemoveArgument // an option of the driver
	}
	return nil
}

func (s *recordedCall) ExecContext(_ context.Context, values []driver.NamedValue) (driver.Result, error) {
	if s.text == sessionSettings {
		return driver.ResultNoRows, nil
	}
	m := called.FindStringSubmatch(s.text)
	if m == nil {
		return nil, fmt.Errorf("%q is no call", s.text)
	}
	bound := map[string]parameter{}
	for _, v := range values {
		bound[v.Name] = parameterOf(v)
	}
	var all []parameter
	for name := range strings.SplitSeq(m[2], ",") {
		name = strings.TrimPrefix(strings.TrimSpace(name), ":")
		all = append(all, bound[name])
		delete(bound, name)
	}
	for name := range bound {
		all = append(all, parameter{name, "is bound", "and not called"})
	}
	s.r.calls[m[1]] = all
	return driver.ResultNoRows, nil
}

// parameterOf says what a bind is to the database.
func parameterOf(v driver.NamedValue) parameter {
	p := parameter{v.Name, "IN", ""}
	of := reflect.TypeOf(v.Value)
	if o, ok := v.Value.(sql.Out); ok {
		p.mode, of = "OUT", reflect.TypeOf(o.Dest).Elem()
	}
	p.of = map[reflect.Type]string{
		reflect.TypeFor[int64](): "NUMBER", reflect.TypeFor[sql.NullInt64](): "NUMBER", reflect.TypeFor[string](): "VARCHAR2",
		reflect.TypeFor[[]int64](): "t_num", reflect.TypeFor[[]sql.NullInt64](): "t_num", reflect.TypeFor[[]string](): "t_key", reflect.TypeFor[[][]byte](): "t_raw",
	}[of]
	if p.of == "" {
		p.of = of.String()
	}
	return p
}

// TestSpecification: what each call binds is what the procedure takes, in name,
// order, direction and type.
func TestSpecification(t *testing.T) {
	want := specification(t)
	for _, all := range want {
		for i := range all {
			if all[i].of == "t_text" {
				all[i].of = "t_key" // both are tables of VARCHAR2
			}
		}
	}
	rec := &recorder{calls: map[string][]parameter{}}
	o := Options{Connect: "x"}.withDefaults()
	db := sql.OpenDB(rec)
	defer db.Close()
	s := &Store{o: o, services: []*pool{newPool(o, o.Services[0], nil, &home{})}}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.services[0].documents, s.services[0].leases = db, db
	r := &Reader{s}
	op := &Operator{r}
	ctx := t.Context()
	g := lobwriter.Group{Key: "k", First: 1, Last: 1, Chunks: [][]byte{[]byte("x")}, After: lobwriter.Row{Generation: 1}}
	for name, try := range map[string]func() error{
		"bind":        func() error { _, err := s.Bind(ctx, lobwriter.Stream{}); return err },
		"binding":     func() error { _, err := r.Binding(ctx); return err },
		"attend":      func() error { _, err := s.Attend(ctx, lobwriter.Member{}, 0); return err },
		"roster":      func() error { _, err := r.Roster(ctx); return err },
		"leave":       func() error { return s.Leave(ctx, "") },
		"claim":       func() error { _, err := s.Claim(ctx, lobwriter.ClaimRequest{}); return err },
		"renew":       func() error { _, err := s.Renew(ctx, lobwriter.Claim{}, 0); return err },
		"release":     func() error { return s.Release(ctx, lobwriter.Claim{}) },
		"fence":       func() error { _, err := s.Fence(ctx, 0); return err },
		"flush":       func() error { _, err := s.Flush(ctx, &lobwriter.Flush{Groups: []lobwriter.Group{g}}); return err },
		"rows":        func() error { _, err := s.Rows(ctx, 0, []string{"k"}); return err },
		"documents":   func() error { _, err := r.Documents(ctx, lobwriter.Query{Limit: 1}); return err },
		"read":        func() error { _, _, err := r.pieces(ctx, lobwriter.Document{}, 1); return err },
		"repairs":     func() error { _, err := r.Repairs(ctx, "k"); return err },
		"read repair": func() error { _, err := r.repairText(ctx, "k", lobwriter.Mark{}, 1); return err },
		"purge":       func() error { _, err := op.Purge(ctx, lobwriter.Purge{Keys: []string{"k"}}); return err },
		"build": func() error {
			b, err := op.Build(ctx, 1, "k", 1)
			if err != nil {
				return nil // no error was expected
			}
			defer b.Close()
			if err := b.Append(ctx, [][]byte{[]byte("x")}); err != nil {
				return nil
			}
			_, _, err = b.Swap(ctx, lobwriter.Row{Generation: 1, Chunks: 1}, nil)
			return err
		},
		"environment": func() error { _, err := s.services[0].connector.prepare(ctx, &recorded{rec}); return err },
	} {
		// No answer is ever taken from a reply in which everything is missing.
		if err := try(); err == nil && name != "leave" && name != "documents" {
			t.Errorf("%s: an empty reply is taken for an answer", name)
		}
	}
	for name, got := range rec.calls {
		if !slices.Equal(got, want[name]) {
			t.Errorf("%s:\n got %v\nwant %v", name, got, want[name])
		}
		delete(want, name)
	}
	unused := slices.Sorted(maps.Keys(want))
	if !slices.Equal(unused, []string{"quarantine"}) {
		t.Errorf("nothing calls %v", unused)
	}
}
