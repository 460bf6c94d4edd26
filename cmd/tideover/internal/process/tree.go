//go:build unix

package process

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// processTree starts, signals, ends and reaps the processes of the current attempt.
type processTree struct {
	family *family
	grace  time.Duration // between TERM and KILL
	notice func(string)  // see Config.Notice

	mu      sync.Mutex // held while processes are started, signalled by number, or reaped
	current *attempt   // nil between attempts
	refused bool       // notice was called because we may not signal the command
}

// add starts the command of an attempt, and makes the attempt the current one. It holds the lock,
// so that a signal is handled either before the start, or after it; then it is forwarded to the
// command.
func (t *processTree) add(a *attempt, start func() (pid int, err error)) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.pid, err = start(); err == nil {
		t.current = a
	}
	return err
}

// clear removes the current attempt, so that signals are no longer forwarded.
func (t *processTree) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current = nil
}

// change is a new state of the command: stopped or ended.
type change struct {
	syscall.WaitStatus
	continued int // number of CONT signals that we had sent before the change
}

// watch sends each change of the command's state to a.states, until the command has ended. No other
// function waits for the command.
func (t *processTree) watch(a *attempt) {
	for {
		c, err := t.await(a)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		a.states <- c
		if err != nil || !c.Stopped() {
			return
		}
	}
}

// stale reports whether the stop happened before our latest CONT signal, so that the command already
// runs again.
func (t *processTree) stale(a *attempt, c change) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return c.continued < a.continues
}

// forwardStop forwards a TSTP to the attempt, and returns false if there is none.
func (t *processTree) forwardStop() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current == nil || !t.current.running {
		return false
	}
	select {
	case t.current.stops <- struct{}{}:
	default:
	}
	return true
}

// signalGroup sends the signal to the group of the current attempt, and returns false if there is
// none.
func (t *processTree) signalGroup(sig syscall.Signal) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.current
	if a == nil {
		return false
	}
	err := syscall.Kill(-a.pid, sig)
	if sig == syscall.SIGCONT || isEnding(sig) {
		a.continues++
	}
	if a.running {
		// The command itself may have moved to another group.
		if group, e := syscall.Getpgid(a.pid); e == nil && group != a.pid {
			err = errors.Join(ignoreGone(err), syscall.Kill(a.pid, sig))
		}
	}
	if ignoreGone(err) != nil && !t.refused {
		t.refused = true
		t.notice(fmt.Sprintf("the command (process %d) may not be signalled: %v; waiting for it to end", a.pid, err))
	}
	if isEnding(sig) {
		// A stopped process handles only KILL until it is continued.
		_ = syscall.Kill(-a.pid, syscall.SIGCONT)
	}
	return true
}

func ignoreGone(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// unkillable is how long to wait for a process to disappear after KILL. A process that sleeps in the
// kernel, or that we may not signal, does not disappear.
const unkillable = 2 * time.Second

// sweep ends the processes that the attempt has left running: the rest of its group and, where they
// can be found, the descendants that left the group.
func (t *processTree) sweep(a *attempt) {
	// There is one grace period in total, not one per generation of processes.
	grace := time.Now().Add(t.grace)
	signalled := map[int]bool{} // pids that got TERM; the group is a negative number
	if !a.termSent.IsZero() {
		grace = a.termSent.Add(t.grace)
		maps.Copy(signalled, a.termSentTo)
	}
	checked := false
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		t.reap()
		left := t.left(a)
		switch late := time.Since(grace); {
		case len(left) == 0 && checked:
			return
		case len(left) == 0:
			// The process table is not read atomically: a process whose parent died meanwhile has a
			// parent that we don't know. So check twice.
			checked = true
			continue
		case late > unkillable:
			t.notice("processes left running: " + describePIDs(left))
			return
		case late >= 0:
			t.signalEach(left, syscall.SIGKILL, nil)
		default:
			t.signalEach(left, syscall.SIGTERM, signalled)
		}
		checked = false
		time.Sleep(pause)
	}
}

// sendTerm sends TERM to all processes of the attempt and starts the grace period. group is false
// if the group has got the signal already.
func (t *processTree) sendTerm(a *attempt, group bool) {
	a.termSent, a.termSentTo = time.Now(), map[int]bool{}
	if group {
		t.signalGroup(syscall.SIGTERM)
	}
	a.termSentTo[-a.pid] = true
	t.signalEach(t.left(a), syscall.SIGTERM, a.termSentTo)
}

// left returns the pids to signal to reach all processes of the attempt: the group as a negative
// number, and the processes outside of it.
func (t *processTree) left(a *attempt) []int {
	var left []int
	if !errors.Is(syscall.Kill(-a.pid, 0), syscall.ESRCH) {
		left = append(left, -a.pid)
	}
	for _, p := range t.family.descendants() {
		if p.group != a.pid {
			left = append(left, p.pid)
		}
	}
	return left
}

// signalEach sends the signal to the pids that are not in signalled, and adds them to it. signalled may be
// nil.
func (t *processTree) signalEach(pids []int, sig syscall.Signal, signalled map[int]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, pid := range pids {
		if signalled[pid] {
			continue
		}
		if signalled != nil {
			signalled[pid] = true
		}
		_ = syscall.Kill(pid, sig)
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// reap collects the exit status of inherited descendants.
func (t *processTree) reap() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, pid := range t.family.children() {
		if t.current != nil && t.current.running && pid == t.current.pid {
			continue // the attempt waits for it
		}
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}

// describePIDs lists processes, and process groups as negative numbers.
func describePIDs(pids []int) string {
	names := make([]string, len(pids))
	for i, pid := range pids {
		names[i] = strconv.Itoa(pid)
		if pid < 0 {
			names[i] = "group " + strconv.Itoa(-pid)
		}
	}
	return strings.Join(names, ", ")
}
