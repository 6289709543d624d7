package main

import "syscall"

// attributes keep a process apart from the signals of the terminal, and end it
// when this program dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// freeze stops a process where it stands.
func (p *process) freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// thaw has it go on.
func (p *process) thaw() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
