package pgtest

import "syscall"

func attributes(string) (*syscall.SysProcAttr, error) { return &syscall.SysProcAttr{}, nil }
