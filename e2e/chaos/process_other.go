//go:build !linux

package main

import (
	"errors"
	"syscall"
)

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

var errNotHere = errors.New("processes are frozen on Linux only")

func (p *process) freeze() error { return errNotHere }

func (p *process) thaw() error { return errNotHere }
