package natstest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
)

// plan chooses the addresses of the nodes.
func (n *nodes) plan(binary string, count int) error {
	for i := range count {
		node := &node{
			binary: binary,
			name:   fmt.Sprintf("n%d", i),
			dir:    filepath.Join(n.dir, fmt.Sprintf("n%d", i)),
			access: n.options.access,
			all:    n,
		}
		n.list = append(n.list, node)
		if err := os.MkdirAll(node.dir, 0o700); err != nil {
			return err
		}
		for _, port := range []*int{&node.client, &node.cluster, &node.monitor} {
			number, reserved, err := reservePort()
			if err != nil {
				return err
			}
			*port, n.reserved = number, append(n.reserved, reserved)
		}
	}
	if n.options.proxies {
		return n.addProxies()
	}
	return nil
}

// addProxies puts one proxy in front of each node, and one for each direction
// between two.
func (n *nodes) addProxies() (err error) {
	for i, node := range n.list {
		if node.front, err = newProxy(node.client); err != nil {
			return err
		}
		node.routes = make([]*proxy, len(n.list))
		for j, other := range n.list {
			if i == j {
				continue
			}
			if node.routes[j], err = newProxy(other.cluster); err != nil {
				return err
			}
		}
	}
	return nil
}

// reservePort returns a TCP port that is free and stays free until the
// reservation is closed. It is below the ports that systems use for outgoing
// connections, because a node that restarts needs the same port again.
//
// The reservation is the UDP port of the same number. Other processes that
// reserve ports in this way do not get it, and it ends with this process.
func reservePort() (port int, reservation io.Closer, err error) {
	for range 1000 {
		port = 12_000 + rand.IntN(18_000)
		address := fmt.Sprintf("127.0.0.1:%d", port)
		udp, err := net.ListenPacket("udp", address) //nolint:noctx // it does not wait
		if err != nil {
			continue
		}
		tcp, err := net.Listen("tcp", address) //nolint:noctx // it does not wait
		if err != nil {
			_ = udp.Close()
			continue
		}
		if err := tcp.Close(); err != nil {
			return 0, nil, errors.Join(err, udp.Close())
		}
		return port, udp, nil
	}
	return 0, nil, errors.New("no free port between 12000 and 30000")
}
