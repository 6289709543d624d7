package pgtest

import "syscall"

// dieWithParent stops the server at once when the test binary dies, however it
// dies.
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGQUIT }
