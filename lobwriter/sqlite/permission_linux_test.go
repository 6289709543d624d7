package sqlite_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/lobsink/lobsink/lobwriter/lobtest"
	"github.com/lobsink/lobsink/lobwriter/sqlite"
)

// asSomebody runs do without the rights of root to go past permissions.
func asSomebody(t *testing.T, do func()) {
	t.Helper()
	if os.Getuid() != 0 {
		do()
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		const nobody = 65534
		if err := syscall.Setfsuid(nobody); err != nil {
			t.Error(err)
			return
		}
		do()
	}()
	<-done
}

// Who may read but not write can use a reader, and is told why a store does not
// open.
func TestPermissions(t *testing.T) {
	folder := t.TempDir()
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil { // made for its owner only
		t.Fatal(err)
	}
	o := sqlite.Options{Path: filepath.Join(folder, "lobsink.db")}
	if _, _, err := sqlite.Setup(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s := open(t, o)
	own := lobtest.NewOwner(t, s, 1)
	own.Flush(t, own.Append("k", lobtest.Text(1, "<a/>")))
	read := func() {
		r, err := sqlite.OpenReader(t.Context(), o)
		if err != nil {
			t.Error(err)
			return
		}
		defer r.Close()
		checkDocument(t, r, "k", "<a/>")
	}
	for name, mode := range map[string]os.FileMode{"": 0o444, "-wal": 0o444, "-shm": 0o444} {
		if err := os.Chmod(o.Path+name, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(folder, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Chmod(folder, 0o755) })
	asSomebody(t, read) // while it is open
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	asSomebody(t, read) // and when it is not
	asSomebody(t, func() {
		_, err := sqlite.Open(t.Context(), o)
		fatal(t, err, "must be writable")
		_, err = sqlite.Lock(t.Context(), o.Path, nil)
		fatal(t, err, "must be writable")
		for _, path := range []string{filepath.Join(folder, "new.db"), filepath.Join(folder, "new", "new.db")} {
			_, _, err = sqlite.Setup(t.Context(), sqlite.Options{Path: path})
			fatal(t, err, "must be writable")
		}
	})
}
