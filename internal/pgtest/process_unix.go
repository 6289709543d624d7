//go:build unix

package pgtest

import (
	"errors"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// attributes returns what the server's processes run with: for root, which
// PostgreSQL refuses, the credentials of another user, who then owns home.
func attributes(home string) (*syscall.SysProcAttr, error) {
	a := &syscall.SysProcAttr{}
	dieWithParent(a)
	if os.Getuid() != 0 {
		return a, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, err
		}
		a.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		return a, os.Chown(home, uid, gid)
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody")
}
