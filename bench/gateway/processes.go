package gateway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Command is a program with its arguments, and additions to its environment.
type Command struct {
	Args []string
	Env  []string
}

// process is a started process.
type process struct {
	name string
	cmd  *exec.Cmd
	log  string        // file with its stderr
	done chan struct{} // closed when it has ended
}

type processes []*process

// start starts a process. Everything except the upstream runs on the core bench.Core,
// if that is set. With printsAddress, the first line that the process prints is its
// address.
func (t *testbed) start(ctx context.Context, name string, c Command, printsAddress bool) (e endpoint, err error) {
	args := c.Args
	if name != upstreamPart && t.bench.Core != "" {
		args = append([]string{"taskset", "-c", t.bench.Core}, args...)
	}
	p := &process{name: name, log: filepath.Join(t.bench.Dir, name+".log"), done: make(chan struct{})}
	p.cmd = exec.CommandContext(ctx, args[0], args[1:]...)
	p.cmd.Dir = t.bench.Dir
	p.cmd.Env = append(t.environment(name), c.Env...)
	log, err := os.Create(p.log)
	if err != nil {
		return e, err
	}
	defer log.Close()
	p.cmd.Stderr = log
	// Our own processes end when this pipe does, even if we are killed.
	if _, err := p.cmd.StdinPipe(); err != nil {
		return e, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return e, err
	}
	if err := p.cmd.Start(); err != nil {
		return e, err
	}
	t.processes = append(t.processes, p)
	r := bufio.NewReader(out)
	e.pid = p.cmd.Process.Pid
	if printsAddress {
		e.addr, err = r.ReadString('\n')
		e.addr = strings.TrimSpace(e.addr)
	}
	go func() {
		defer close(p.done)
		_, _ = io.Copy(io.Discard, r)
		_ = p.cmd.Wait() // it is killed at the end
	}()
	return e, err
}

// environment returns our environment without the variables that would treat one
// process differently from the others, or make it use the user's files.
func (t *testbed) environment(name string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GOMAXPROCS=") || strings.HasPrefix(v, "GOGC=") || strings.HasPrefix(v, "GOMEMLIMIT=") ||
			strings.HasPrefix(v, "TIDEOVER_") || strings.HasPrefix(v, "XDG_")
	})
	if name != upstreamPart && t.bench.Core == "" {
		env = append(env, "GOMAXPROCS=1")
	}
	return append(env, "HOME="+t.bench.Dir)
}

// readyWithin is how long a new process may take until it answers a request.
const readyWithin = 20 * time.Second

// ready waits until the system answers correctly.
func (all *processes) ready(ctx context.Context, name string, e endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	ended := make(chan struct{}) // never closed if there is no process
	for _, p := range *all {
		if p.name == name {
			ended = p.done
		}
	}
	tick := time.Tick(10 * time.Millisecond)
	for {
		c := &client{addr: e.addr, text: e.get(), end: time.Now().Add(readyWithin), r: bufio.NewReader(nil)}
		err := c.exchange()
		c.close()
		if err == nil {
			return nil
		}
		select {
		case <-tick:
		case <-ended:
			return errors.New("the process has ended")
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// logTail returns the end of a process's log, for an error.
func (all *processes) logTail(name string) string {
	for _, p := range *all {
		if p.name != name {
			continue
		}
		text, err := os.ReadFile(p.log)
		if text = bytes.TrimSpace(text); err == nil && len(text) > 0 {
			return fmt.Sprintf("; its log:\n%s", text[max(0, len(text)-2000):])
		}
	}
	return ""
}

// stop kills all processes, and waits for their end.
func (all *processes) stop() {
	for _, p := range *all {
		_ = p.cmd.Process.Kill() // it may have ended
	}
	for _, p := range *all {
		<-p.done
	}
}
