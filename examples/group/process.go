package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// process is an acceptor that runs as a separate process: this program, with
// the verb acceptor.
type process struct {
	id      int
	dir     string
	address string
	cmd     *exec.Cmd
	input   io.Closer // the process ends when it is closed
}

// startProcess starts an acceptor and returns when it listens. An empty address
// means any free one.
func startProcess(ctx context.Context, id int, dir, address string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, verbAcceptor, "-id", strconv.Itoa(id), "-dir", dir, "-listen", cmp.Or(address, "127.0.0.1:0"))
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{id: id, dir: dir, cmd: cmd, input: input}
	line, err := bufio.NewReader(out).ReadString('\n')
	if p.address = strings.TrimSpace(line); err != nil {
		return nil, errors.Join(fmt.Errorf("acceptor %d did not start: %w", id, err), p.stop())
	}
	return p, nil
}

// startProcesses starts n acceptors with their files in the folder.
func startProcesses(ctx context.Context, n int, dir string) (list []*process, err error) {
	for i := range n {
		p, err := startProcess(ctx, i, dir, "")
		if err != nil {
			return list, errors.Join(err, stopAll(list))
		}
		list = append(list, p)
	}
	return list, nil
}

// kill kills the process with SIGKILL: it cannot write anything more.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = p.stop() // the error only says that the process was killed
	return nil
}

// restart starts the acceptor again, at the same address and on the same file.
func (p *process) restart(ctx context.Context) error {
	next, err := startProcess(ctx, p.id, p.dir, p.address)
	if err == nil {
		*p = *next
	}
	return err
}

// stop ends the process and waits for it.
func (p *process) stop() error {
	_ = p.input.Close()
	return p.cmd.Wait()
}

// stopAll stops all processes. It closes the input of all of them before it waits for the
// first one to end.
func stopAll(list []*process) error {
	var errs []error
	for _, p := range list {
		_ = p.input.Close()
	}
	for _, p := range list {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

// addressesOf returns the addresses of the acceptors.
func addressesOf(list []*process) (all []string) {
	for _, p := range list {
		all = append(all, p.address)
	}
	return all
}
