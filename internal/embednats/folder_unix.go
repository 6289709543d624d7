//go:build linux || darwin || freebsd

package embednats

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock locks a file until it is closed.
func tryLock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// diskFree is what this user may still write on the disk of a folder.
func diskFree(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return unknownFree
	}
	blocks, size := int64(st.Bavail), int64(st.Bsize)
	if blocks < 0 || size <= 0 || blocks > math.MaxInt64/2/size {
		return unknownFree
	}
	return blocks * size
}
