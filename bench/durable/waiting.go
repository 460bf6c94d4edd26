package durable

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Waiting configures the measurement with many waiting runs.
type Waiting struct {
	Dir     string        // a folder to be filled
	Runs    int           // number of waiting runs
	Variant string        // Delayed, Retrying or Sleeping
	Seconds float64       // least time of new work
	Rate    int           // how many of the runs below become due in a second
	Due     int           // number of runs that become due during the measurement
	Ahead   time.Duration // how long those runs wait
}

// The values of Waiting.Variant.
const (
	Delayed  = "delayed"  // started with a delay far in the future
	Retrying = "retrying" // failed once, and wait for the next attempt
	Sleeping = "sleeping" // flows that wait in Sleep, after three operations
)

// Child returns the command of a process that calls [Waiting.Child] with the
// name of its part.
type Child func(ctx context.Context, part string, w Waiting) *exec.Cmd

// Measure runs three child processes. The first does new work in an empty folder. The
// second fills another folder with waiting runs and is killed. The third does the
// same new work in the filled folder.
func (w Waiting) Measure(ctx context.Context, child Child) (map[string]float64, error) {
	values := map[string]float64{}
	empty, full := w, w
	empty.Dir, full.Dir = filepath.Join(w.Dir, "empty"), filepath.Join(w.Dir, "full")
	alone, err := startChild(child(ctx, "work", empty))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(alone.next(values, "empty: "), alone.readRest(values, "empty: ")); err != nil {
		return nil, err
	}
	filling, err := startChild(child(ctx, "fill", full))
	if err != nil {
		return nil, err
	}
	if err := filling.next(values, ""); err != nil {
		return nil, err
	}
	killed := time.Now()
	if err := filling.kill(); err != nil {
		return nil, err
	}
	again, err := startChild(child(ctx, "work", full))
	if err != nil {
		return nil, err
	}
	err = again.next(values, "")
	values["restart seconds"] = time.Since(killed).Seconds()
	return values, errors.Join(err, again.readRest(values, ""))
}

// process is a child process that prints its measurements, one line for each part. Its
// standard input ends when this process ends.
type process struct {
	cmd *exec.Cmd
	in  io.Closer
	out *bufio.Scanner
}

func startChild(cmd *exec.Cmd) (*process, error) {
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{cmd, in, bufio.NewScanner(out)}, cmd.Start()
}

// next reads the next line and adds its values, with the prefix before their names.
func (p *process) next(values map[string]float64, prefix string) error {
	if !p.out.Scan() {
		return fmt.Errorf("%v ended early: %w", p.cmd.Args, joinOrEOF(p.out.Err(), p.cmd.Wait()))
	}
	return p.parse(values, prefix)
}

// readRest reads the other lines, and waits for the end of the process.
func (p *process) readRest(values map[string]float64, prefix string) (err error) {
	for p.out.Scan() {
		err = errors.Join(err, p.parse(values, prefix))
	}
	return errors.Join(err, p.out.Err(), p.cmd.Wait())
}

func (p *process) parse(values map[string]float64, prefix string) error {
	var part map[string]float64
	if err := json.Unmarshal(p.out.Bytes(), &part); err != nil {
		return fmt.Errorf("%v printed %q: %w", p.cmd.Args, p.out.Text(), err)
	}
	for name, v := range part {
		values[prefix+name] = v
	}
	return nil
}

// kill kills the child with SIGKILL, and waits for it.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	if p.cmd.Wait() == nil {
		return errors.New("the process had ended before it was killed")
	}
	return nil
}

func joinOrEOF(a, b error) error {
	if err := errors.Join(a, b); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}
