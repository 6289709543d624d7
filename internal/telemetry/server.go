package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/exporter-toolkit/web"
)

// Check is one thing that must be well before lobsink is ready.
type Check struct {
	Name string
	// Err says what is not well; nil: it is.
	Err error
}

// shutdownTimeout is how long requests under way may take when the server stops.
const shutdownTimeout = 2 * time.Second

// Listen takes the address HOST:PORT; port 0 is any free one. It is apart from
// Serve so that an address in use is found before anything else has started.
func Listen(ctx context.Context, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("cannot serve HTTP on %s: the port is in use; stop what listens there, or choose another address with --http: %w", addr, err)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot serve HTTP: %w; choose another address with --http", err)
	}
	return l, nil
}

// Health is what is asked when somebody wants to know how the process is.
type Health struct {
	// Alive says why the process should be started again; nil: it should not.
	// What is down elsewhere is no reason.
	Alive func() error
	// Ready returns everything that must be well before lobsink is ready.
	Ready func() []Check
}

// Options are what is served, and how.
type Options struct {
	Metrics prometheus.Gatherer
	Health  Health
	// WebConfig is a file with TLS, users and headers, in the form that all
	// exporters of Prometheus read; "": none of them. It is read again with each
	// request. See CheckWebConfig.
	WebConfig string
}

// CheckWebConfig returns what is wrong with a file for Options.WebConfig.
func CheckWebConfig(path string) error { return web.Validate(path) }

// Serve serves metrics and health on l until ctx ends, and closes l. It returns
// when all requests have ended, and an error only if it could not serve.
func Serve(ctx context.Context, l net.Listener, o Options) error {
	return serve(ctx, l, Handler(o.Metrics, o.Health), o.WebConfig)
}

// ServeProfiles serves the profiles of Go's runtime, as Serve does. They show what
// the process works on: l should not be reachable from other machines.
func ServeProfiles(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return serve(ctx, l, mux, "")
}

func serve(ctx context.Context, l net.Listener, h http.Handler, webConfig string) error {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute}
	failed := make(chan error, 1)
	go func() {
		quiet := slog.New(slog.DiscardHandler) // it says at each start that it starts
		failed <- web.Serve(l, srv, &web.FlagConfig{WebConfigFile: &webConfig}, quiet)
	}()
	select {
	case err := <-failed:
		return fmt.Errorf("HTTP server: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	if srv.Shutdown(stop) != nil {
		_ = srv.Close() // somebody still reads: the time is up
	}
	<-failed
	return nil
}

// Handler serves the endpoints that index lists.
func Handler(metrics prometheus.Gatherer, health Health) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) {
		if err := health.Alive(); err != nil {
			reply(w, http.StatusServiceUnavailable, err.Error()+"\n")
			return
		}
		reply(w, http.StatusOK, "ok\n")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		_, verbose := r.URL.Query()["verbose"]
		status, text := readiness(health.Ready(), verbose)
		reply(w, status, text)
	})
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, index)
	})
	return mux
}

const index = `lobsink

/metrics          metrics for Prometheus
/livez            200 while the process gets on, whatever else is down
/readyz           200 while fragments are taken and stored, otherwise 503 with the reasons
/readyz?verbose   the same, with every check
`

// readiness lists what is not well, or with verbose every check, in the form
// that the Kubernetes API server has for its own.
func readiness(checks []Check, verbose bool) (status int, text string) {
	var b strings.Builder
	status = http.StatusOK
	for _, c := range checks {
		switch {
		case c.Err != nil:
			status = http.StatusServiceUnavailable
			fmt.Fprintf(&b, "[-] %s: %v\n", c.Name, c.Err)
		case verbose:
			fmt.Fprintf(&b, "[+] %s\n", c.Name)
		}
	}
	if status == http.StatusOK {
		return status, b.String() + "ready\n"
	}
	return status, b.String() + "not ready\n"
}

func reply(w http.ResponseWriter, status int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text) // who does not read it any more has gone
}
