package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lobsink/lobsink/lobwriter/sqlite"
)

// lockAndHang is the other process: it takes the lock, says so, and waits until
// it is killed.
func lockAndHang(path string) int {
	if _, err := sqlite.Lock(context.Background(), path, nil); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("locked")
	bufio.NewReader(os.Stdin).ReadByte()
	return 0
}

// startHolder starts another process and waits until it has the lock.
func startHolder(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], holdLock, path)
	if _, err := cmd.StdinPipe(); err != nil { // open until the process is gone
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "locked\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	return cmd
}

func TestLockWaitsForAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lobsink.db")
	other := startHolder(t, path)
	waiting, locked := make(chan string, 1), make(chan error, 1)
	go func() {
		release, err := sqlite.Lock(t.Context(), path, func(holder string) { waiting <- holder })
		if err == nil {
			err = release()
		}
		locked <- err
	}()
	if who := <-waiting; !strings.HasPrefix(who, fmt.Sprintf("process %d since ", other.Process.Pid)) {
		t.Errorf("it waits for %q, which is process %d", who, other.Process.Pid)
	}
	select {
	case err := <-locked:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	if err := other.Process.Kill(); err != nil { // kill -9
		t.Fatal(err)
	}
	if err := <-locked; err != nil {
		t.Error(err)
	}
}

func TestLockWithoutAFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "lobsink.db")
	_, err := sqlite.Lock(t.Context(), path, nil)
	fatal(t, err, "run: lobsink setup --store sqlite:"+path)
}

func TestLockEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lobsink.db")
	release, err := sqlite.Lock(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err = sqlite.Lock(ctx, path, func(string) { cancel() })
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("error %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	release, err = sqlite.Lock(t.Context(), path, func(string) { t.Error("it waits for nobody") })
	if err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
