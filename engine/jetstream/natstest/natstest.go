// Package natstest starts real NATS servers, as processes, for tests.
//
// The server is built once per machine and version from the module in the folder
// server, which nothing else depends on, and kept in the user's cache folder.
// Where it can't be built, tests are skipped with the reason.
//
// A cluster listens on loopback, keeps its streams in a temporary folder and
// syncs each message to disk. Its nodes can be killed, stopped, restarted and,
// behind proxies, cut off.
package natstest

import (
	"fmt"
	"io"
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

// user is who clients are that name none.
const user = "test"

// Cluster is some servers that belong together.
type Cluster struct {
	t testing.TB
	*nodes
}

// nodes is what the views of one cluster share.
type nodes struct {
	dir      string
	options  options
	list     []*node
	reserved []io.Closer // the ports
}

// Option changes a cluster from what it is by default.
type Option func(*options)

type options struct {
	proxies bool
	access  string
	sync    string
	extra   string
}

// WithProxies puts proxies before and between the nodes, for [Cluster.Cut].
// Clients are not told of other nodes than those they were given.
func WithProxies() Option { return func(o *options) { o.proxies = true } }

// WithAccess replaces the accounts and users: it is text of the servers'
// configuration, such as an authorization or tls block.
func WithAccess(text string) Option { return func(o *options) { o.access = text } }

// WithSync sets how often streams are synced to disk, instead of "always".
func WithSync(interval string) Option { return func(o *options) { o.sync = interval } }

// WithConfig adds text to the servers' configuration.
func WithConfig(text string) Option { return func(o *options) { o.extra = text } }

// Start starts a cluster that ends with the test, and waits until it is ready.
// Its nodes are numbered from 0.
func Start(t testing.TB, count int, opts ...Option) *Cluster {
	t.Helper()
	binary, err := Build()
	if err != nil {
		t.Skipf("no NATS server to test with: %v", err)
	}
	n, err := start(binary, count, opts)
	if err != nil {
		n.end()
		t.Fatal(err)
	}
	t.Cleanup(n.end)
	c := &Cluster{t, n}
	c.WaitReady()
	return c
}

// start makes a folder of its own: a shared cluster outlives the test that was the
// first to need it.
func start(binary string, count int, opts []Option) (*nodes, error) {
	n := &nodes{options: options{sync: "always", access: defaultAccess}}
	var err error
	if n.dir, err = os.MkdirTemp("", "natstest-"); err != nil {
		return n, err
	}
	for _, o := range opts {
		o(&n.options)
	}
	if err := n.plan(binary, count); err != nil {
		return n, err
	}
	for _, node := range n.list {
		if err := node.start(); err != nil {
			return n, err
		}
	}
	return n, nil
}

// end kills everything, so that nothing that is left waits for anything.
func (n *nodes) end() {
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

// Nodes returns how many nodes there are, dead ones included.
func (c *Cluster) Nodes() int { return len(c.list) }

// Store returns the folder in which a node keeps its streams.
func (c *Cluster) Store(i int) string { return filepath.Join(c.list[i].dir, "store") }

// Kill ends a node as a crash does.
func (c *Cluster) Kill(i int) { c.list[i].kill() }

// Restart starts a node that was killed; an optional text replaces the one of
// [WithAccess] for it.
func (c *Cluster) Restart(i int, access ...string) {
	c.t.Helper()
	if len(access) > 0 {
		c.list[i].access = access[0]
	}
	if err := c.list[i].start(); err != nil {
		c.t.Fatal(err)
	}
}

// Stop stops a node at any point of its work; it keeps its connections.
func (c *Cluster) Stop(i int) {
	c.t.Helper()
	if err := c.list[i].freeze(testwait.Context(c.t)); err != nil {
		c.t.Fatal(err)
	}
}

// Continue lets a stopped node go on.
func (c *Cluster) Continue(i int) {
	c.t.Helper()
	if err := c.list[i].thaw(); err != nil {
		c.t.Fatal(err)
	}
}

// Cut separates a node from its clients and from all other nodes. The cluster
// must have proxies.
func (c *Cluster) Cut(i int) { c.cut(i, true) }

// Heal undoes a cut.
func (c *Cluster) Heal(i int) { c.cut(i, false) }

// CutClients separates a node from its clients only.
func (c *Cluster) CutClients(i int) { c.list[i].front.block(true) }

// HealClients undoes CutClients.
func (c *Cluster) HealClients(i int) { c.list[i].front.block(false) }

func (c *Cluster) cut(i int, block bool) {
	c.list[i].front.block(block)
	for j, other := range c.list {
		if j != i {
			c.list[i].routes[j].block(block)
			other.routes[i].block(block)
		}
	}
}

var shared struct {
	sync.Mutex
	*nodes
}

// Shared returns a cluster of three nodes that lives until [StopShared]. Tests
// that use it choose names of their own, and leave it as whole as it was.
func Shared(t testing.TB) *Cluster {
	t.Helper()
	binary, err := Build()
	if err != nil {
		t.Skipf("no NATS server to test with: %v", err)
	}
	shared.Lock()
	defer shared.Unlock()
	if shared.nodes == nil {
		n, err := start(binary, 3, nil)
		if err != nil {
			n.end()
			t.Fatal(err)
		}
		shared.nodes = n
	}
	c := &Cluster{t, shared.nodes}
	c.WaitReady()
	return c
}

// StopShared ends the shared cluster. Call it at the end of TestMain.
func StopShared() {
	shared.Lock()
	defer shared.Unlock()
	if shared.nodes != nil {
		shared.end()
		shared.nodes = nil
	}
}

// String names the cluster in failures.
func (c *Cluster) String() string { return fmt.Sprintf("%d nodes in %s", len(c.list), c.dir) }
