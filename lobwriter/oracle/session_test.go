//go:build cgo

package oracle_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/godror/godror"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/lobsink/lobsink/lobwriter"
	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/oracle"
	"github.com/lobsink/lobsink/lobwriter/oracle/standin"
)

// TestConnect: what a session costs, and what it is refused for.
func TestConnect(t *testing.T) {
	t.Run("round trips", func(t *testing.T) {
		d, o := database(t)
		open(t, o)
		trips := d.Trips()
		if trips[standin.Login] != 1 || trips[standin.Execute] != 1 || trips["environment"] != 1 || trips["binding"] != 1 || trips[""] != 4 {
			t.Errorf("round trips %v; want a logon, the settings, the environment and the binding", trips)
		}
	})
	for _, c := range []struct {
		name   string
		change func(*standin.Place)
		kind   lobwriter.Kind
		says   string
	}{
		{"a standby", func(p *standin.Place) { p.Role = "PHYSICAL STANDBY" }, lobwriter.Transient, "PHYSICAL STANDBY"},
		{"another character set", func(p *standin.Place) { p.CharacterSet = "WE8MSWIN1252" }, lobwriter.Fatal, "WE8MSWIN1252"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, o := database(t)
			d.SetPlace(c.change)
			_, err := oracleOpen(t, o)
			if lobwriter.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v: %v", lobwriter.KindOf(err), err)
			}
		})
	}
	t.Run("no tables", func(t *testing.T) {
		_, o := database(t)
		o.Prefix = "other_"
		if _, err := oracleOpen(t, o); lobwriter.KindOf(err) != lobwriter.Fatal || !strings.Contains(err.Error(), "lobsink schema apply") {
			t.Errorf("%v", err)
		}
	})
	t.Run("external authentication", func(t *testing.T) {
		_, o := database(t)
		o.User, o.Password = "", nil
		open(t, o)
	})
	t.Run("a password that is rotated", func(t *testing.T) {
		d, o := database(t)
		var password atomic.Value
		password.Store("old")
		o.Password = func(context.Context) (string, error) { return password.Load().(string), nil }
		d.SetAccount("lobsink", "old", 0)
		s := open(t, o)
		password.Store("new")
		d.SetAccount("lobsink", "new", 0)
		d.Cut()
		r, ctx := retrying(t, s)
		lobtest.Bind(t, r)
		if _, err := r.Attend(ctx, lobwriter.Member{ID: "x", Name: "n", Version: "v"}, time.Hour); err != nil {
			t.Error(err)
		}
	})
}

// TestTags: the database knows what a call is for.
func TestTags(t *testing.T) {
	d := start(t)
	own := lobtest.NewOwner(t, d.store, 1)
	var seen sync.Map
	d.SetFaults(func(r standin.Request) standin.Fault {
		if r.Procedure != "" {
			seen.Store(r.Procedure, fmt.Sprint(r.Module, "|", r.Action, "|", r.ClientInfo))
		}
		return standin.Fault{}
	})
	own.Flush(t, own.Append("k", lobtest.Text(1, "x")))
	if _, err := d.store.Renew(t.Context(), own.Claim, time.Hour); err != nil {
		t.Fatal(err)
	}
	for procedure, want := range map[string]string{"flush": "lobsink|flush|test v0.0.0", "renew": "lobsink|renew|test v0.0.0"} {
		if got, _ := seen.Load(procedure); got != want {
			t.Errorf("%s: %v, want %s", procedure, got, want)
		}
	}
}

// TestNoLOBs/O15,O16,O17: nothing that is called asks for a temporary LOB or a
// locator. The stand-in would see it: the driver makes a LOB of a long string.
func TestNoLOBs(t *testing.T) {
	t.Run("O15,O16,O17", func(t *testing.T) {
		d := start(t)
		own := lobtest.NewOwner(t, d.store, 1)
		text := strings.Repeat("<r>é€𝄞</r>", 100_000)
		own.Flush(t, own.Append("k", lobtest.Text(1, text)), own.Append("l", lobtest.Hole(2)))
		lobtest.CheckDocument(t, d.reader, lobwriter.UTF16, "k", text)
		if _, err := d.store.Attend(t.Context(), lobwriter.Member{ID: "x"}, time.Hour); err != nil {
			t.Fatal(err)
		}
		if n := d.Trips()[standin.LOB]; n != 0 {
			t.Errorf("%d temporary LOBs", n)
		}
		raw, err := sql.Open("godror", fmt.Sprintf(`user="x" password="y" connectString=%q standaloneConnection=1 timezone="UTC" libDir=%q`, d.o.Connect, clientDir))
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		_, err = raw.ExecContext(t.Context(), `BEGIN lobsink_v1.leave(:p_id); END;`, sql.Named("p_id", strings.Repeat("x", 40_000)), godror.NoRetry())
		if n := d.Trips()[standin.LOB]; n == 0 {
			t.Errorf("a long string made no LOB: the stand-in sees nothing (%v)", err)
		}
	})
}

// TestServices: each partition's calls go to its service. When one is gone the
// other partitions go on, and where somebody is to take over it does.
func TestServices(t *testing.T) {
	d, o := database(t)
	o.Services = []oracle.Service{{Connect: d.Connect("A")}, {Connect: d.Connect("B"), Takeover: d.Connect("A")}}
	o.TakeoverAfter = 50 * time.Millisecond
	s := open(t, o)
	var where sync.Map
	d.SetFaults(func(r standin.Request) standin.Fault {
		if r.Procedure == "flush" {
			where.Store(r.Action, r.Service)
		}
		return standin.Fault{}
	})
	owners := make([]*lobtest.Owner, 2)
	for p := range owners {
		owners[p] = lobtest.NewOwner(t, s, p)
	}
	flush := func(p int, seq uint64) string {
		t.Helper()
		own := owners[p]
		r, ctx := retrying(t, s)
		own.Store = r
		if _, err := own.Deliver(ctx, own.Append(fmt.Sprint("k", p), lobtest.Text(seq, "x"))); err != nil {
			t.Fatal(err)
		}
		service, _ := where.Load("flush")
		return service.(string)
	}
	if a, b := flush(0, 1), flush(1, 1); a != "A" || b != "B" {
		t.Errorf("partitions 0 and 1 went to %s and %s", a, b)
	}
	d.RefuseService("B", 12514)
	d.Cut()
	if a, b := flush(0, 2), flush(1, 2); a != "A" || b != "A" {
		t.Errorf("without B, partitions 0 and 1 went to %s and %s", a, b)
	}
	d.RefuseService("B", 0)
	for seq := uint64(3); flush(1, seq) != "B"; seq++ { // at the latest when B is tried again
		if seq > 1000 {
			t.Fatal("when B is back, partition 1 does not go there")
		}
		d.Cut() // the end of a session's life
		time.Sleep(10 * time.Millisecond)
	}
}

// TestServicesOfTwoDatabases: a service that leads elsewhere is refused, even when it
// is seen for the first time later.
func TestServicesOfTwoDatabases(t *testing.T) {
	one, o := database(t)
	two, _ := database(t)
	two.Schema("lobsink_").SetDatabaseID("deadbeef")
	o.Services = []oracle.Service{{Connect: one.Connect("A")}, {Connect: two.Connect("B")}}
	s := open(t, o)
	lobtest.NewOwner(t, s, 0)
	_, err := s.Claim(t.Context(), lobwriter.ClaimRequest{Partition: 1, MemberID: "00000000000000aa", ClaimID: "00000000000000cc", Lease: time.Hour})
	if lobwriter.KindOf(err) != lobwriter.Fatal || !strings.Contains(err.Error(), "service B") || !strings.Contains(err.Error(), "deadbeef") {
		t.Errorf("%v", err)
	}
}

// TestBackoff: a service that is down is not asked for a logon with every call.
func TestBackoff(t *testing.T) {
	d := start(t)
	own := lobtest.NewOwner(t, d.store, 1)
	d.RefuseService("DOCS", 12514)
	d.Cut()
	d.Trips()
	for range 500 {
		if _, err := d.store.Flush(t.Context(), own.NewFlush()); lobwriter.KindOf(err) != lobwriter.Transient || err == nil {
			t.Fatalf("%v", err)
		}
	}
	if n := d.Trips()[standin.Login]; n > 20 {
		t.Errorf("%d logons", n)
	}
	d.RefuseService("DOCS", 0)
	r, ctx := retrying(t, d.store)
	own.Store = r
	if _, err := own.Deliver(ctx, own.Append("k", lobtest.Text(1, "<a/>"))); err != nil {
		t.Error(err)
	}
}

// TestWriters/O65: no more sessions of a service write LOBs at once than allowed.
func TestWriters(t *testing.T) {
	t.Run("O65", func(t *testing.T) {
		d, o := database(t)
		o.Flushes = 2
		reg := prometheus.NewRegistry()
		o.Registerer = reg
		s := open(t, o)
		d.SetFaults(func(r standin.Request) standin.Fault {
			if r.Procedure == "flush" {
				return standin.Fault{Delay: 20 * time.Millisecond}
			}
			return standin.Fault{}
		})
		var g errgroup.Group
		for p := range 4 {
			own := lobtest.NewOwner(t, s, p)
			g.Go(func() error {
				for seq := uint64(1); seq <= 5; seq++ {
					f := own.NewFlush(own.Append(fmt.Sprint("k", p), lobtest.Text(seq, "xyz")))
					r, err := s.Flush(t.Context(), f)
					if err != nil {
						return err
					}
					own.Settle(f, r)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if n := d.MostAtOnce("flush"); n != 2 {
			t.Errorf("%d flushes at once", n)
		}
		if writes, bytes := counted(t, reg, "lobsink_oracle_lob_writes_total"), counted(t, reg, "lobsink_oracle_written_bytes_total"); writes != 20 || bytes != 60 {
			t.Errorf("metrics of standin1: %v LOB writes, %v bytes", writes, bytes)
		}
	})
}

// counted returns what is counted for the instance of the stand-in.
func counted(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && m.GetLabel()[0].GetName() == "db_instance" && m.GetLabel()[0].GetValue() == "standin1" {
				return m.GetCounter().GetValue()
			}
		}
	}
	return -1
}

// TestNoClient: without Oracle's client library it is said what to install. In a
// process of its own, because the driver looks for it once.
func TestNoClient(t *testing.T) {
	if os.Getenv("ORACLE_TEST_NO_CLIENT") != "" {
		_, err := oracle.Open(context.Background(), oracle.Options{Connect: "127.0.0.1:1/x", ClientDir: t.TempDir()})
		var e *lobwriter.Error
		if !errors.As(err, &e) || e.Kind != lobwriter.Fatal || e.Code != "DPI-1047" || !strings.Contains(err.Error(), "Instant Client") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v", err)
		}
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestNoClient$", "-test.v")
	cmd.Env = append(os.Environ(), "ORACLE_TEST_NO_CLIENT=1", "LD_LIBRARY_PATH=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
