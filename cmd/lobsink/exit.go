package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lobsink/lobsink/lobwriter"
)

// The exit codes. 64, 69 and 78 are EX_USAGE, EX_UNAVAILABLE and EX_CONFIG of
// sysexits.h; a service manager need not start the program again after 64 and 78.
const (
	exitOK          = 0
	exitFailed      = 1
	exitRejects     = 2  // finished, but something was refused
	exitUsage       = 64 // the command line is wrong
	exitUnavailable = 69 // NATS or the database cannot be reached
	exitConfig      = 78 // configuration, or what an operator has to set up
)

// exitError is an error that knows the exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// withCode gives err an exit code; nil stays nil.
func withCode(code int, err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: code, err: err}
}

func failed(format string, args ...any) error {
	return withCode(exitFailed, fmt.Errorf(format, args...))
}

func usage(format string, args ...any) error {
	return withCode(exitUsage, fmt.Errorf(format, args...))
}

func misconfigured(format string, args ...any) error {
	return withCode(exitConfig, fmt.Errorf(format, args...))
}

// withExitCode reports whether an error has a code of its own.
func withExitCode(err error) bool { return errors.As(err, new(*exitError)) }

// exitCode returns the code of an error: its own, or what its kind means.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	var store *lobwriter.Error
	if errors.As(err, &store) {
		switch store.Kind {
		case lobwriter.Fatal, lobwriter.Credentials:
			return exitConfig
		case lobwriter.Transient:
			return exitUnavailable
		}
	}
	if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) {
		return exitConfig // a connection that is refused for good is closed too
	}
	for _, absent := range []error{
		nats.ErrNoServers, nats.ErrTimeout, nats.ErrNoResponders, nats.ErrConnectionClosed,
		jetstream.ErrNoStreamResponse, context.DeadlineExceeded,
	} {
		if errors.Is(err, absent) {
			return exitUnavailable
		}
	}
	return exitFailed
}
