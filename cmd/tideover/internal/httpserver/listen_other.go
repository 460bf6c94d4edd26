//go:build !unix

package httpserver

import (
	"errors"
	"net"
)

// ListenUnix returns an error: on this system, file permissions do not protect a socket.
func ListenUnix(string) (net.Listener, error) {
	return nil, errors.New("this system has no Unix sockets with file permissions; use the address and the token")
}
