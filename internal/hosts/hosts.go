// Package hosts checks the Host header of a request against the names of a
// server. That prevents DNS rebinding, in which a web page makes its own name
// resolve to this machine.
package hosts

import (
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Set has the names of a server, in addition to those of the loopback interface.
type Set []string

// New returns the set of names, each with or without port.
func New(names []string) Set {
	s := make(Set, len(names))
	for i, n := range names {
		s[i] = canonical(n)
	}
	return s
}

// Has reports whether the Host of a request is a name of the server or of the
// loopback interface.
func (s Set) Has(host string) bool {
	full := canonical(host)
	name := full
	if n, _, err := net.SplitHostPort(full); err == nil {
		name = n
	}
	return IsLoopback(name) || full != "" && (slices.Contains(s, full) || slices.Contains(s, name))
}

// IsLoopback reports whether the name is localhost or an address of the loopback interface. It is
// false for other names, which may resolve to any address.
func IsLoopback(name string) bool {
	ip, err := netip.ParseAddr(name)
	return name == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Names reports whether the set contains the host with its port.
func (s Set) Names(host string) bool { return slices.Contains(s, canonical(host)) }

// Same reports whether two Host headers are equal, apart from upper case and a dot at the
// end of the name.
func Same(a, b string) bool { return canonical(a) == canonical(b) }

func canonical(host string) string {
	host = strings.ToLower(host)
	if name, port, err := net.SplitHostPort(host); err == nil {
		return net.JoinHostPort(strings.TrimSuffix(name, "."), port)
	}
	return strings.TrimSuffix(strings.Trim(host, "[]"), ".")
}
