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

// unkillable is how long a process may take to disappear after KILL before it
// is left to itself: it sleeps in the kernel, or is not ours to signal.
const unkillable = 2 * time.Second

// sweep ends what the attempt has left running: the rest of its group and, where
// they can be found, the descendants that left the group.
func (s *Supervisor) sweep(a *attempt) {
	// Whoever ends us waits for one grace, not for one per generation.
	grace := time.Now().Add(s.cfg.Grace)
	told := map[int]bool{} // by process; the group goes by its negative number
	if !a.told.IsZero() {
		grace = a.told.Add(s.cfg.Grace)
		maps.Copy(told, a.toldToo)
	}
	looked := false
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		s.reap()
		left := s.left(a)
		switch late := time.Since(grace); {
		case len(left) == 0 && looked:
			return
		case len(left) == 0:
			// The process table is not read in one moment: one whose parent died
			// meanwhile is in it as a child of nobody we know. So look again.
			looked = true
			continue
		case late > unkillable:
			s.notice("left running: process %s", list(left))
			return
		case late >= 0:
			s.signalEach(left, syscall.SIGKILL, nil)
		default:
			s.signalEach(left, syscall.SIGTERM, told)
		}
		looked = false
		time.Sleep(pause)
	}
}

// tell asks everything of the attempt to end, with TERM; the grace runs from
// here. The group may have got it already.
func (s *Supervisor) tell(a *attempt, group bool) {
	a.told, a.toldToo = time.Now(), map[int]bool{}
	if group {
		s.signalGroup(syscall.SIGTERM)
	}
	a.toldToo[-a.pid] = true
	s.signalEach(s.left(a), syscall.SIGTERM, a.toldToo)
}

// left returns whom to signal to reach everything the attempt has left: the
// group, as a negative number, and the processes outside of it.
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

// signalEach sends the signal to those not in told, which may be nil, and adds
// them to it.
func (s *Supervisor) signalEach(pids []int, sig syscall.Signal, told map[int]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, pid := range pids {
		if told[pid] {
			continue
		}
		if told != nil {
			told[pid] = true
		}
		_ = syscall.Kill(pid, sig)
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// reap buries the descendants that came to us when their parents died.
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
