package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// healthTimeout is how long the process may take to answer.
const healthTimeout = 5 * time.Second

func (a *app) healthcheckCommand() *cobra.Command {
	var ready bool
	cmd := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask the lobsink on this machine whether it lives, or is ready",
		Long: `Asks the HTTP endpoint of the lobsink that runs with the same configuration, for
containers that have no other program to ask with. The exit code is 0 if it
answers that all is well.`,
		Example: `  lobsink healthcheck
  lobsink healthcheck --ready --http 127.0.0.1:7070`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.load()
			if err != nil {
				return err
			}
			if cfg.HTTP == "" {
				return misconfigured("http is off: set an address to ask at")
			}
			path := "/livez"
			if ready {
				path = "/readyz"
			}
			resp, err := askHealth(cmd.Context(), cfg, path)
			if err != nil {
				return withCode(exitFailed, fmt.Errorf("no lobsink answers: %w", err))
			}
			defer func() { _ = resp.Body.Close() }() // it was read
			text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
			if err != nil {
				return withCode(exitFailed, err)
			}
			if resp.StatusCode != http.StatusOK {
				return failed("%s", strings.TrimSpace(string(text)))
			}
			_, err = fmt.Fprint(a.stdout, string(text))
			return err
		},
	}
	cmd.Flags().BoolVar(&ready, "ready", false, "ask whether fragments are taken and stored, not only whether the process lives")
	a.flags.add(cmd.Flags(), "http")
	return cmd
}

// askHealth asks the process on this machine. With http_config it may speak TLS.
func askHealth(ctx context.Context, cfg *Config, path string) (*http.Response, error) {
	schemes := []string{"http"}
	if cfg.HTTPConfig != "" {
		schemes = []string{"https", "http"}
	}
	// Whose certificate it is does not matter to who asks on this machine.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	client := &http.Client{Timeout: healthTimeout, Transport: transport}
	var failed error
	for _, scheme := range schemes {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+reachable(cfg.HTTP)+path, nil)
		if err != nil {
			return nil, err
		}
		resp, err := client.Do(req)
		if err == nil {
			return resp, nil
		}
		failed = errors.Join(failed, err)
	}
	return nil, failed
}

// reachable returns an address to listen on as one to connect to.
func reachable(addr string) string {
	host, port, err := net.SplitHostPort(addr)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}
