package pgtest_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lobsink/lobsink/internal/pgtest"
)

// startAndHang is the first argument that makes this test binary one that has
// started a server and dies.
const startAndHang = "start-and-hang"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == startAndHang {
		s, err := pgtest.New(pgtest.NoSync())
		fmt.Println(s.Dir(), err)
		select {}
	}
	os.Exit(m.Run())
}

// insert adds a row and returns how many there are.
func insert(t *testing.T, url string) (n int) {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	if _, err := c.Exec(t.Context(), "create table if not exists t (); insert into t default values"); err != nil {
		t.Fatal(err)
	}
	if err := c.QueryRow(t.Context(), "select count(*) from t").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestServer(t *testing.T) {
	s := pgtest.Start(t)
	url := s.CreateDatabase(t)
	if n := insert(t, url); n != 1 {
		t.Errorf("%d rows in a new table", n)
	}
	s.StopImmediate()
	s.CopyTo(s.Dir() + "-copy")
	s.Restart()
	if n := insert(t, url); n != 2 {
		t.Errorf("%d rows after an immediate stop: not all that was committed", n)
	}
	s.StopImmediate()
	s.RestoreFrom(s.Dir() + "-copy")
	s.Restart()
	if n := insert(t, url); n != 2 {
		t.Errorf("%d rows after the database went back", n)
	}
}

func TestServerDiesWithTheTest(t *testing.T) {
	c := exec.Command(os.Args[0], startAndHang)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	dir, ok := strings.CutSuffix(line, " <nil>\n")
	c.Process.Kill()
	c.Wait()
	if !ok {
		t.Fatalf("the server did not start: %s", line)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(dir)) })
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(dir, "postmaster.pid")); os.IsNotExist(err) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("a minute after the test was killed, its server still runs")
		}
	}
}
