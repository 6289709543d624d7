package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// lockPoll is how often a waiting Lock looks again.
const lockPoll = 100 * time.Millisecond

// errLocked means that another process has the lock.
var errLocked = errors.New("locked")

// Lock takes the operating-system lock that makes this process the only one that
// runs on the database path. It is on the file path.lock, which stays, and ends
// with release or with the process, however that ends.
//
// While another process has it, Lock waits until ctx ends; onWait is told once
// whom it waits for, such as "process 4711 since 2026-01-02T15:04:05Z".
func Lock(ctx context.Context, path string, onWait func(holder string)) (release func() error, err error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o640)
	if errors.Is(err, os.ErrNotExist) { // not even the folder is there
		err = missing(path, err)
	}
	if err != nil {
		return nil, classify("lock "+path, err)
	}
	ticker := time.NewTicker(lockPoll)
	defer ticker.Stop()
	for told := false; ; told = true {
		err := tryLock(f)
		if err == nil {
			break
		}
		if !errors.Is(err, errLocked) {
			f.Close()
			return nil, classify("lock "+path, err)
		}
		if !told && onWait != nil {
			onWait(holder(f))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			err := fmt.Errorf("%w; it is held by %s", context.Cause(ctx), holder(f))
			f.Close()
			return nil, classify("lock "+path, err)
		}
	}
	sign(f)
	return f.Close, nil
}

// sign writes who has the lock, for the message of those that wait. That it fails,
// on a full disk say, is no reason not to run.
func sign(f *os.File) {
	f.Truncate(0)
	f.WriteAt(fmt.Appendf(nil, "process %d since %s\n", os.Getpid(), time.Now().UTC().Format(time.RFC3339)), 0)
}

func holder(f *os.File) string {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 256))
	if who := strings.TrimSpace(string(text)); err == nil && who != "" {
		return who
	}
	return "another process"
}
