package natstest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// defaultAccess is the part of the configuration that has the users.
const defaultAccess = `
accounts {
	TEST { jetstream: enabled, users: [{user: "` + user + `", password: "` + user + `"}] }
	$SYS { users: [{user: "` + SystemUser + `", password: "` + SystemPassword + `"}] }
}
no_auth_user: "` + user + `"
`

// node is a server.
type node struct {
	binary, name, dir        string
	client, cluster, monitor int // ports
	access                   string
	all                      *nodes
	front                    *proxy   // in front of the client port; nil means none
	routes                   []*proxy // to the other nodes, by their numbers; nil means none

	mu      sync.Mutex
	process *process
}

// process is a running server.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

func (n *node) clientAddress() string {
	if n.front != nil {
		return n.front.address()
	}
	return fmt.Sprintf("127.0.0.1:%d", n.client)
}

func (n *node) start() error {
	path := filepath.Join(n.dir, "server.conf")
	if err := os.WriteFile(path, []byte(n.config()), 0o600); err != nil {
		return err
	}
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(n.binary, "-c", path) //nolint:noctx // it ends when it is killed
	cmd.Stdout, cmd.Stderr = log, log
	dieWithParent(cmd)
	p := &process{cmd, make(chan struct{})}
	if err := p.run(); err != nil {
		return fmt.Errorf("start node %s: %w", n.name, err)
	}
	n.mu.Lock()
	n.process = p
	n.mu.Unlock()
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
		// No process listens on that port: nodes must not advertise ways around
		// the proxies to each other or to clients.
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

// run starts the process on a thread that lives as long as the process: on
// Linux the process dies with the thread.
func (p *process) run() error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // it was killed, and the error says so
			close(p.done)
		}
	}()
	return <-started
}

func (n *node) running() *process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process
}

func (n *node) kill() {
	n.mu.Lock()
	p := n.process
	n.process = nil
	n.mu.Unlock()
	if p == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.done
}

func (n *node) closeProxies() {
	for _, p := range append(n.routes, n.front) {
		if p != nil {
			p.close()
		}
	}
}

func (n *node) logPath() string { return filepath.Join(n.dir, "server.log") }

// logTail returns the last lines that the server wrote.
func (n *node) logTail() string {
	text, err := os.ReadFile(n.logPath())
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}
