// Package natstest starts real NATS servers, as processes, for tests.
//
// The server is built once per machine and version from the module in the
// folder server, on which nothing else depends, and is kept in the user's cache
// folder. If it cannot be built, tests are skipped with the reason.
//
// A cluster listens on the loopback interface, stores its streams in a
// temporary folder and syncs each message to disk. Its nodes can be killed,
// stopped, restarted and, with proxies, cut off.
package natstest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

// The user and the password of the system account of a cluster without
// [WithAccess]. Its other clients need none.
const (
	SystemUser     = "system"
	SystemPassword = "system"
)

// user is the name that clients have if they connect without credentials.
const user = "test"

// Cluster is a number of servers that form a cluster.
type Cluster struct {
	t testing.TB
	*nodes
}

// nodes is the state that all Cluster values of one cluster share.
type nodes struct {
	dir      string
	options  options
	list     []*node
	reserved []io.Closer // the reserved ports
}

// Option configures a cluster.
type Option func(*options)

type options struct {
	proxies bool
	access  string
	sync    string
	extra   string
}

// WithProxies puts proxies in front of and between the nodes, for
// [Cluster.Cut]. Servers do not advertise other nodes to their clients.
func WithProxies() Option { return func(o *options) { o.proxies = true } }

// WithAccess replaces the part of the servers' configuration that has the accounts and
// users, for example by an authorization or a tls block.
func WithAccess(text string) Option { return func(o *options) { o.access = text } }

// WithSync sets how often streams are synced to disk, instead of "always".
func WithSync(interval string) Option { return func(o *options) { o.sync = interval } }

// WithConfig adds text to the servers' configuration.
func WithConfig(text string) Option { return func(o *options) { o.extra = text } }

// Start starts a cluster that ends with the test, and waits until it is ready. With -short, it skips the test.
// Its nodes are numbered from 0.
func Start(t testing.TB, count int, opts ...Option) *Cluster {
	t.Helper()
	n := start(t, count, opts)
	t.Cleanup(n.stop)
	c := &Cluster{t, n}
	c.WaitReady()
	return c
}

// start starts the servers. It makes its own folder, because a shared cluster
// outlives the test that needed it first.
func start(t testing.TB, count int, opts []Option) *nodes {
	t.Helper()
	if testing.Short() {
		t.Skip("with -short, no server is started")
	}
	binary, err := Build()
	if err != nil {
		t.Skipf("no NATS server to test with: %v", err)
	}
	n := &nodes{options: options{sync: "always", access: defaultAccess}}
	for _, o := range opts {
		o(&n.options)
	}
	if err := n.start(binary, count); err != nil {
		n.stop()
		t.Fatal(err)
	}
	return n
}

func (n *nodes) start(binary string, count int) (err error) {
	if n.dir, err = os.MkdirTemp("", "natstest-"); err != nil {
		return err
	}
	err = n.plan(binary, count)
	for i := 0; i < len(n.list) && err == nil; i++ {
		err = n.list[i].start()
	}
	return err
}

// stop kills all servers and removes their files.
func (n *nodes) stop() {
	for _, node := range n.list {
		node.kill()
		node.closeProxies()
	}
	for _, r := range n.reserved {
		_ = r.Close()
	}
	_ = os.RemoveAll(n.dir)
}

// URL returns the addresses of all nodes, for one client.
func (c *Cluster) URL() string {
	urls := make([]string, len(c.list))
	for i := range c.list {
		urls[i] = c.NodeURL(i)
	}
	return strings.Join(urls, ",")
}

// NodeURL returns the address of a node.
func (c *Cluster) NodeURL(i int) string { return "nats://" + c.list[i].clientAddress() }

// Nodes returns the number of nodes, dead ones included.
func (c *Cluster) Nodes() int { return len(c.list) }

// Store returns the folder in which a node keeps its streams.
func (c *Cluster) Store(i int) string { return filepath.Join(c.list[i].dir, "store") }

// Kill kills a node, like a crash.
func (c *Cluster) Kill(i int) { c.list[i].kill() }

// Restart starts a node that was killed. An optional text replaces the text of
// [WithAccess] for this node.
func (c *Cluster) Restart(i int, access ...string) {
	c.t.Helper()
	if len(access) > 0 {
		c.list[i].access = access[0]
	}
	c.must(c.list[i].start())
}

// must ends the test if err is not nil.
func (c *Cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// Stop freezes a node (SIGSTOP); its connections stay open.
func (c *Cluster) Stop(i int) {
	c.t.Helper()
	c.must(c.list[i].freeze(testwait.Context(c.t)))
}

// Continue continues a stopped node.
func (c *Cluster) Continue(i int) {
	c.t.Helper()
	c.must(c.list[i].thaw())
}

// Reload makes a node read its configuration again (SIGHUP).
func (c *Cluster) Reload(i int) {
	c.t.Helper()
	c.must(c.list[i].reload())
}

// Cut disconnects a node from its clients and from all other nodes. The cluster
// must have proxies.
func (c *Cluster) Cut(i int) { c.setBlocked(i, true) }

// Heal reverts a Cut.
func (c *Cluster) Heal(i int) { c.setBlocked(i, false) }

// CutClients disconnects a node from its clients only.
func (c *Cluster) CutClients(i int) { c.list[i].front.block(true) }

// HealClients reverts CutClients.
func (c *Cluster) HealClients(i int) { c.list[i].front.block(false) }

func (c *Cluster) setBlocked(i int, block bool) {
	c.list[i].front.block(block)
	for j, other := range c.list {
		if j != i {
			c.list[i].routes[j].block(block)
			other.routes[i].block(block)
		}
	}
}

// shared has the clusters that tests share, by the number of their nodes.
var shared struct {
	sync.Mutex
	clusters map[int]*nodes
}

// Shared returns a cluster of three nodes that lives until [StopShared]. Tests
// that use it must choose unique names, and leave all its nodes running.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	return sharedCluster(t, 3)
}

// SharedNode is [Shared] with one node. It uses much less processor time, and
// suits tests of what does not depend on replicas.
func SharedNode(t testing.TB) *Cluster {
	t.Helper()
	return sharedCluster(t, 1)
}

func sharedCluster(t testing.TB, count int) *Cluster {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.clusters[count] == nil {
		if shared.clusters == nil {
			shared.clusters = map[int]*nodes{}
		}
		shared.clusters[count] = start(t, count, nil)
	}
	c := &Cluster{t, shared.clusters[count]}
	c.WaitReady()
	return c
}

// StopShared ends the shared clusters. Call it at the end of TestMain.
func StopShared() {
	shared.Lock()
	defer shared.Unlock()
	for _, n := range shared.clusters {
		n.stop()
	}
	shared.clusters = nil
}

// String describes the cluster in test failures.
func (c *Cluster) String() string { return fmt.Sprintf("%d nodes in %s", len(c.list), c.dir) }

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
