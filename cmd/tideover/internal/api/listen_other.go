//go:build !unix

package api

import (
	"errors"
	"net"
)

// ListenUnix returns an error: the mode of a file protects nothing here.
func ListenUnix(string) (net.Listener, error) {
	return nil, errors.New("there are no protected sockets on this system; use the address and the token")
}
