//go:build unix

package process

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"syscall"
	"time"
)

// unkillable is how long to wait for a process to disappear after KILL. It may sleep in the kernel,
// or we may not signal it.
const unkillable = 2 * time.Second

// sweep ends the processes that the attempt has left running: the rest of its group and, where they
// can be found, the descendants that left the group.
func (s *Supervisor) sweep(a *attempt) {
	// There is one grace period in total, not one per generation of processes.
	grace := time.Now().Add(s.cfg.Grace)
	signalled := map[int]bool{} // pids that got TERM; the group is a negative number
	if !a.termSent.IsZero() {
		grace = a.termSent.Add(s.cfg.Grace)
		maps.Copy(signalled, a.termSentTo)
	}
	looked := false
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		s.reap()
		left := s.left(a)
		switch late := time.Since(grace); {
		case len(left) == 0 && looked:
			return
		case len(left) == 0:
			// The process table is not read atomically: a process whose parent died meanwhile has a
			// parent that we don't know. So check twice.
			looked = true
			continue
		case late > unkillable:
			s.notice("processes left running: %s", list(left))
			return
		case late >= 0:
			s.signalEach(left, syscall.SIGKILL, nil)
		default:
			s.signalEach(left, syscall.SIGTERM, signalled)
		}
		looked = false
		time.Sleep(pause)
	}
}

// sendTerm sends TERM to all processes of the attempt and starts the grace period. group is false
// if the group has got the signal already.
func (s *Supervisor) sendTerm(a *attempt, group bool) {
	a.termSent, a.termSentTo = time.Now(), map[int]bool{}
	if group {
		s.signalGroup(syscall.SIGTERM)
	}
	a.termSentTo[-a.pid] = true
	s.signalEach(s.left(a), syscall.SIGTERM, a.termSentTo)
}

// left returns the pids to signal to reach all processes of the attempt: the group as a negative
// number, and the processes outside of it.
func (s *Supervisor) left(a *attempt) []int {
	var left []int
	if !errors.Is(syscall.Kill(-a.pid, 0), syscall.ESRCH) {
		left = append(left, -a.pid)
	}
	for _, p := range s.family.descendants() {
		if p.group != a.pid {
			left = append(left, p.pid)
		}
	}
	return left
}

// signalEach sends the signal to the pids that are not in signalled, and adds them to it. signalled may be
// nil.
func (s *Supervisor) signalEach(pids []int, sig syscall.Signal, signalled map[int]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
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
func (s *Supervisor) reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pid := range s.family.children() {
		if s.current != nil && s.current.running && pid == s.current.pid {
			continue // the attempt waits for it
		}
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}

func list(pids []int) string {
	var b strings.Builder
	for i, pid := range pids {
		if i > 0 {
			b.WriteString(", ")
		}
		if pid < 0 {
			fmt.Fprintf(&b, "group %d", -pid)
		} else {
			fmt.Fprint(&b, pid)
		}
	}
	return b.String()
}
