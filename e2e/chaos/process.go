package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a server or a lobsink. On Linux it does not outlive this program,
// however that ends.
type process struct {
	name  string
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended
}

// startProcess starts a program. What it writes goes to log.
func startProcess(name string, log io.Writer, path string, args ...string) (*process, error) {
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = attributes()
	p := &process{name: name, cmd: cmd, ended: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		defer close(p.ended)
		// The signal at the death of the parent comes at the death of the thread
		// that started the child, so that must live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its ProcessState
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// signal sends a signal. A process that has ended already is no error.
func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

// kill ends it at once, as kill -9 does, and waits until it has ended.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.ended
}

// terminate asks for a clean end. After a time it is killed.
func (p *process) terminate(within time.Duration) error {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(within):
		p.kill()
		return fmt.Errorf("%s did not end within %s of SIGTERM", p.name, within)
	}
	if code := p.exitCode(); code != 0 {
		return fmt.Errorf("%s ended with exit code %d after SIGTERM", p.name, code)
	}
	return nil
}

// exitCode is the exit code of a process that has ended; -1: of a signal.
func (p *process) exitCode() int { return p.cmd.ProcessState.ExitCode() }
