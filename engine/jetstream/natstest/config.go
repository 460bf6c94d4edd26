package natstest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

const defaultAccess = `
accounts {
	TEST { jetstream: enabled, users: [{user: "` + user + `", password: "` + user + `"}] }
	$SYS { users: [{user: "` + SystemUser + `", password: "` + SystemPassword + `"}] }
}
no_auth_user: "` + user + `"
`

// plan chooses addresses and writes nothing yet.
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
			var err error
			if *port, err = freePort(); err != nil {
				return err
			}
		}
	}
	if n.options.proxies {
		return n.addProxies()
	}
	return nil
}

// addProxies puts one before each node, and one for each direction between two.
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

// config returns the configuration of a node.
func (n *node) config() string {
	var b strings.Builder
	fmt.Fprintf(&b, "server_name: %s\nlisten: \"127.0.0.1:%d\"\nhttp: \"127.0.0.1:%d\"\n", n.name, n.client, n.monitor)
	fmt.Fprintf(&b, "jetstream { store_dir: %q, sync_interval: %q, max_file: 8GB, max_mem: 64MB }\n",
		filepath.Join(n.dir, "store"), n.all.options.sync)
	b.WriteString(n.access)
	b.WriteString(n.all.options.extra)
	if len(n.all.list) > 1 {
		fmt.Fprintf(&b, "\ncluster {\n\tname: natstest\n\tlisten: \"127.0.0.1:%d\"\n%s}\n", n.cluster, n.routeConfig())
	}
	return b.String()
}

func (n *node) routeConfig() string {
	var b strings.Builder
	if n.routes != nil {
		// Nobody listens there: nodes must not tell each other, nor clients, of
		// ways around the proxies.
		b.WriteString("\tadvertise: \"127.0.0.1:1\"\n\tno_advertise: true\n")
	}
	b.WriteString("\troutes: [\n")
	for i, other := range n.all.list {
		switch {
		case other == n:
		case n.routes != nil:
			fmt.Fprintf(&b, "\t\t\"nats://%s\"\n", n.routes[i].address())
		default:
			fmt.Fprintf(&b, "\t\t\"nats://127.0.0.1:%d\"\n", other.cluster)
		}
	}
	b.WriteString("\t]\n")
	return b.String()
}

// givenPorts are the ports that nodes of this process have or had.
var givenPorts sync.Map

// freePort returns a port that nobody listens on. It is below those that systems
// give to outgoing connections: a node that restarts needs the same one again.
func freePort() (int, error) {
	for range 100 {
		port := 12_000 + rand.IntN(18_000)
		if _, given := givenPorts.LoadOrStore(port, true); given {
			continue // to a node that may not listen yet
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)) //nolint:noctx // it does not wait
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no free port between 12000 and 30000")
}
