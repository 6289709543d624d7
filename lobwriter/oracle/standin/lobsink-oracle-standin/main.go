// Command lobsink-oracle-standin stands in for an Oracle database and for its client
// library, to try lobsink against. It keeps everything in memory for as long as it
// runs. It shows nothing about Oracle: see package standin.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/lobsink/lobsink/lobwriter/oracle/standin"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "`address` of the database")
	control := flag.String("control", "127.0.0.1:0", "`address` to see and disturb the database at")
	library := flag.String("library", "", "`folder` for the client library, which is built there; without one, a new temporary one")
	flag.Parse()
	if err := run(*listen, *control, *library); err != nil {
		fmt.Fprintln(os.Stderr, "lobsink-oracle-standin:", err)
		os.Exit(1)
	}
}

func run(listen, control, library string) error {
	if library == "" {
		dir, err := os.MkdirTemp("", "lobsink-oracle-standin")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		library = dir
	}
	if err := standin.Build(library); err != nil {
		return err
	}
	db, err := standin.Start(listen)
	if err != nil {
		return err
	}
	defer db.Close()
	l, err := net.Listen("tcp", control)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: db.Control(), ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(l) }()
	at := standin.Addresses{Connect: db.Connect("DOCS"), Control: "http://" + l.Addr().String(), Library: library}
	if err := json.NewEncoder(os.Stdout).Encode(at); err != nil {
		return err
	}
	fmt.Fprintln(os.Stderr, "try:", at)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	select {
	case err := <-failed:
		return err
	case <-stop:
		_ = server.Close() // nobody is to be waited for
		<-failed
		return nil
	}
}
