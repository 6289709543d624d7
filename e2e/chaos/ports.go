package main

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// ports gives out addresses for servers that stop and start again on the same
// one. They lie below the range from which systems take the ports of clients:
// one of those must not sit there meanwhile.
type ports struct {
	given map[int]bool
}

const (
	firstPort = 20000
	lastPort  = 32000
)

// next returns a free address of the loopback interface.
func (p *ports) next() (address string, err error) {
	if p.given == nil {
		p.given = map[int]bool{}
	}
	for range 1000 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if p.given[port] {
			continue
		}
		address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		p.given[port] = true
		return address, l.Close()
	}
	return "", errors.New("no free port found")
}
