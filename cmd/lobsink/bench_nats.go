package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lobsink/lobsink/internal/embednats"
)

// benchServe is the NATS server of `bench pipeline`: this program once more, so
// that its processor time is its own.
func (a *app) benchServe() *cobra.Command {
	return &cobra.Command{
		Use:    "serve FOLDER",
		Short:  "Serve NATS until standard input ends",
		Hidden: true,
		Args:   arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			srv, err := embednats.Start(cmd.Context(), embednats.Options{Dir: args[0], Listen: "127.0.0.1:0"})
			if err != nil {
				return err
			}
			defer srv.Shutdown()
			if _, err := fmt.Fprintln(a.stdout, srv.ClientURL()); err != nil {
				return err
			}
			// It ends with the process that started it, however that ends.
			_, err = io.Copy(io.Discard, os.Stdin)
			return err
		},
	}
}

// benchServer is a running `bench serve`.
type benchServer struct {
	cmd   *exec.Cmd
	input io.Closer
	url   string
}

// startBenchServer starts this program as a server with a folder below dir. A
// signal to this process does not end it: the streams are removed first.
func startBenchServer(dir string) (*benchServer, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, failed("cannot start a NATS server: %w; name one with --nats", err)
	}
	cmd := exec.Command(self, "bench", "serve", filepath.Join(dir, "nats"))
	cmd.Args[0] = os.Args[0]
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = 10 * time.Second
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, failed("cannot start a NATS server: %w; name one with --nats", err)
	}
	s := &benchServer{cmd: cmd, input: input}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return nil, failed("the NATS server did not start: %w", errors.Join(err, s.stop()))
	}
	s.url = strings.TrimSpace(line)
	return s, nil
}

func (s *benchServer) pid() int { return s.cmd.Process.Pid }

// stop ends the server and waits for it.
func (s *benchServer) stop() error {
	_ = s.input.Close() // it ends by that, or has ended
	return s.cmd.Wait()
}

// benchSync is how it writes back: as nats-server does unless told otherwise
// (server/filestore.go, defaultSyncInterval).
const benchSync = "every 2m0s"
