package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/internal/paxos"
	"github.com/tideover/tideover/retry"
)

// demo has the flags and the state of the demonstration.
type demo struct {
	Devices   int
	Acceptors int
	Contend   contend.Config
	Out       io.Writer

	mu        sync.Mutex
	start     time.Time
	committed chan struct{} // one element for each update in the log
	retries   int
}

func (d *demo) run(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "group")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	processes, err := startProcesses(ctx, d.Acceptors, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopAll(processes)) }()
	d.start, d.committed = time.Now(), make(chan struct{}, d.Devices)
	for _, p := range processes {
		d.printf("acceptor %d listens on %s, process %d", p.id, p.address, p.cmd.Process.Pid)
	}

	var devices []*Actor
	defer func() {
		for _, a := range devices {
			a.Stop()
		}
	}()
	for i := range d.Devices {
		a, err := d.device(i, addressesOf(processes), nil)
		if err != nil {
			return err
		}
		devices = append(devices, a)
	}
	if err := d.ready(ctx, devices); err != nil {
		return err
	}
	if err := d.proposeAll(ctx, devices, processes[0]); err != nil {
		return err
	}
	newcomer, err := d.invite(ctx, devices[0], addressesOf(processes))
	if err != nil {
		return err
	}
	devices = append(devices, newcomer)
	return d.compare(ctx, devices)
}

// device starts a device that begins with the log and prints its events.
func (d *demo) device(member int, addresses []string, log []paxos.Entry) (*Actor, error) {
	c := Config{Member: member, Acceptors: len(addresses), Log: log, Contend: d.Contend, Observe: d.printEvent}
	return start(c, func(l listener) wire { return dialAll(addresses, l) })
}

// ready waits until every device is connected to every acceptor.
func (d *demo) ready(ctx context.Context, devices []*Actor) error {
	for _, a := range devices {
		if _, err := waitForStatus(ctx, a, func(s Status) bool { return s.Near == d.Acceptors }); err != nil {
			return err
		}
	}
	d.printf("all %d devices propose at once", len(devices))
	return nil
}

// proposeAll lets all devices propose at once, while an acceptor is killed and
// restarted.
func (d *demo) proposeAll(ctx context.Context, devices []*Actor, victim *process) error {
	errs := make([]error, len(devices)+1)
	var all sync.WaitGroup
	for i, a := range devices {
		all.Go(func() {
			if _, errs[i] = a.Update(ctx, fmt.Sprintf("device %d rotates its key", i)); errs[i] != nil {
				errs[i] = fmt.Errorf("device %d: %w", i, errs[i])
			}
			d.committed <- struct{}{} // also after a failed update: killAndRestart counts both
		})
	}
	all.Go(func() { errs[len(devices)] = d.killAndRestart(ctx, victim) })
	all.Wait()
	return errors.Join(errs...)
}

// killAndRestart kills the acceptor when a third of the updates is committed,
// and restarts it when half of them is.
func (d *demo) killAndRestart(ctx context.Context, victim *process) error {
	third, half := d.Devices/3, d.Devices/2
	for range third {
		<-d.committed
	}
	d.printf("acceptor %d is killed", victim.id)
	if err := victim.kill(); err != nil {
		return err
	}
	for range half - third {
		<-d.committed
	}
	err := victim.restart(ctx)
	if err == nil {
		d.printf("acceptor %d is back, process %d", victim.id, victim.cmd.Process.Pid)
	}
	return err
}

// invite adds a member, which gets the log from the host: acceptors may have
// forgotten its beginning.
func (d *demo) invite(ctx context.Context, host *Actor, addresses []string) (*Actor, error) {
	welcome, err := host.AddMember(ctx, fmt.Sprintf("device %d", d.Devices))
	if err != nil {
		return nil, err
	}
	log, err := host.Log()
	if err != nil {
		return nil, err
	}
	d.printf("device %d gets: %s", d.Devices, welcome)
	return d.device(d.Devices, addresses, log)
}

// compare waits until all devices know the same log, and shows it.
func (d *demo) compare(ctx context.Context, devices []*Actor) error {
	want := d.Devices + 1
	var log []string
	for i, a := range devices {
		s, err := waitForStatus(ctx, a, func(s Status) bool { return len(s.Log) >= want })
		if err != nil {
			return fmt.Errorf("device %d: %w", i, err)
		}
		if log == nil {
			log = s.Log
		}
		if !slices.Equal(s.Log, log) {
			return fmt.Errorf("device %d has another log: %q", i, s.Log)
		}
	}
	d.printf("all %d devices committed after %d retries in all, and %d devices have the same log:", d.Devices, d.retries, len(devices))
	for i, text := range log {
		d.printf("  epoch %2d: %s", i+1, text)
	}
	return nil
}

// waitForStatus waits until the status of the actor is as wanted, and returns
// it.
func waitForStatus(ctx context.Context, a *Actor, wanted func(Status) bool) (Status, error) {
	for {
		s, err := a.Status()
		if err != nil || wanted(s) {
			return s, err
		}
		select {
		case <-ctx.Done():
			return s, fmt.Errorf("%+v: %w", s, context.Cause(ctx))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// printEvent prints an event of a device.
func (d *demo) printEvent(e retry.Event) {
	switch e.Kind {
	case retry.Waiting:
		d.mu.Lock()
		d.retries++
		d.mu.Unlock()
		d.printf("%-9s attempt %d %v; waits %v (%s)", e.Name, e.Attempt, e.Err, e.Delay.Round(time.Millisecond), e.Note)
	case retry.Succeeded:
		d.printf("%-9s attempt %d committed: %s", e.Name, e.Attempt, e.Note)
	case retry.GaveUp:
		d.printf("%-9s gave up: %v", e.Name, e.Err)
	default: // the start and the failure of an attempt need no line: a later event shows them
	}
}

func (d *demo) printf(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.Out, "%7.3fs  %s\n", time.Since(d.start).Seconds(), fmt.Sprintf(format, args...))
}
