package account

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

const (
	// ProvenAfter is how long a command must have run without a limit to show that the account has none any more.
	ProvenAfter = 2 * time.Minute

	// DefaultSpread is the time over which those that were held go on.
	DefaultSpread = 30 * time.Second

	// maxStated is the longest wait that is shared. Monthly limits are the longest there are.
	maxStated = 60 * 24 * time.Hour

	// maxProbeDelay is the longest delay before a probe.
	maxProbeDelay = 24 * time.Hour

	// forgetAfter is the age at which a limit without a stated end is forgotten.
	forgetAfter = 24 * time.Hour

	// leaseTime is how long a probe keeps others waiting whose process neither reports nor ends: it may be stopped.
	leaseTime = ProvenAfter + time.Minute

	// minWait is the shortest wait of one that is held.
	minWait = time.Second

	maxText = 500 // bytes that are kept of a text
)

// stateVersion is the version of the file.
const stateVersion = 1

// state is what is known of an account. It is the content of its file.
type state struct {
	Version int    `json:"version"`
	Serial  int64  `json:"serial"` // number of changes
	Limit   *limit `json:"limit,omitempty"`
	Probe   *probe `json:"probe,omitempty"` // that is under way
}

// limit is one that an asker ran into.
type limit struct {
	moment
	Serial int64         `json:"serial"`                  // of the change that recorded it
	ID     string        `json:"id"`                      // of the asker
	By     string        `json:"by"`                      // its name
	Why    string        `json:"why,omitempty"`           // the line that said so
	Wait   time.Duration `json:"wait_ns,omitempty"`       // until it ends, from that moment; 0 means that nothing is known
	Until  time.Time     `json:"until,omitzero"`          // the same as a time of the calendar, if it was stated as one
	Next   time.Duration `json:"next_probe_ns,omitempty"` // until the asker probes, from that moment; only without Wait
}

// probe is an asker that finds out whether a limit is over.
type probe struct {
	moment
	ID string `json:"id"`
	By string `json:"by"`
}

// validate refuses what no process of ours has written.
func (s *state) validate() error {
	var errs []error
	inRange := func(name string, v, most int64) {
		if v < 0 || v > most {
			errs = append(errs, fmt.Errorf("%s: %d is not between 0 and %d", name, v, most))
		}
	}
	const many = 1 << 53
	inRange("serial", s.Serial, many)
	if l := s.Limit; l != nil {
		inRange("limit.serial", l.Serial, s.Serial)
		inRange("limit.wait_ns", int64(l.Wait), int64(maxStated))
		inRange("limit.next_probe_ns", int64(l.Next), int64(maxProbeDelay))
		inRange("limit.uptime_ns", int64(l.Uptime), many*1000)
	}
	if s.Probe != nil {
		inRange("probe.uptime_ns", int64(s.Probe.Uptime), many*1000)
	}
	return errors.Join(errs...)
}

// rebase corrects moments that are in the future, and reports whether there were any.
func (s *state) rebase(now moment) (changed bool) {
	if s.Limit != nil {
		changed = s.Limit.rebase(now)
	}
	if s.Probe != nil {
		changed = s.Probe.rebase(now) || changed
	}
	return changed
}

// stated reports whether it is known when the limit ends.
func (l *limit) stated() bool { return l.Wait > 0 }

// left returns how long it is until a stated limit ends. A time of the calendar comes when the clock says so, but no
// later than it was away when it was stated.
func (l *limit) left(now moment) time.Duration {
	left := l.Wait - l.elapsed(now)
	if !l.Until.IsZero() {
		left = min(left, l.Until.Sub(now.At))
	}
	return left
}

// isOver reports whether nothing follows from the limit any more.
func (l *limit) isOver(now moment) bool {
	if l.stated() {
		return l.left(now) <= 0
	}
	return l.elapsed(now) >= forgetAfter
}

// active returns the limit that is not over, or nil.
func (s *state) active(now moment) *limit {
	if s.Limit == nil || s.Limit.isOver(now) {
		return nil
	}
	return s.Limit
}

// probedBy returns the probe that others wait for, or nil: one that is too old, or the asker's own from before it was
// killed, is none.
func (s *state) probedBy(id string, now moment) *probe {
	if p := s.Probe; p != nil && p.ID != id && p.elapsed(now) < leaseTime {
		return p
	}
	return nil
}

// hold returns how long the asker has to wait because of the limit, nil if it need not. busy is the probe that is under
// way, if there is one.
func (l *limit) hold(account string, a *Asker, busy *probe, now moment) *Held {
	if l.stated() {
		left := l.left(now)
		switch {
		case l.ID == a.ID: // it waits by itself, for what it was told
			return nil
		case left > a.Longest: // it asks, and gives up by itself
			return nil
		case left+a.Slack <= 0:
			return nil
		}
		h := newHeld(left+a.Slack, a, l.describe(account, busy, now))
		h.Stated = true
		return h
	}
	if busy != nil {
		return newHeld(ProvenAfter-busy.elapsed(now), a, l.describe(account, busy, now))
	}
	if next := l.Next - l.elapsed(now); next > 0 && l.ID != a.ID {
		return newHeld(next, a, l.describe(account, nil, now))
	}
	return nil
}

// newHeld returns a wait, with a random part of the spread added to it.
func newHeld(wait time.Duration, a *Asker, why string) *Held {
	return &Held{Wait: max(wait, minWait) + Jitter(a.Spread), Why: HeldPrefix + why}
}

// Jitter returns a random part of the spread.
func Jitter(spread time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(max(spread, 1))))
}

// HeldPrefix is what the reason of every [Held] begins with.
const HeldPrefix = "held: account "

// describe says in words that the account is limited. It begins with the name of the account.
func (l *limit) describe(account string, busy *probe, now moment) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is limited", account)
	if l.stated() {
		fmt.Fprintf(&b, " until %s", now.At.Add(l.left(now)).Local().Format("Jan 2 15:04:05 MST"))
	} else {
		b.WriteString(", without a stated end")
	}
	fmt.Fprintf(&b, ", said by %s", cmp.Or(l.By, "another"))
	if l.Why != "" {
		fmt.Fprintf(&b, ": %s", l.Why)
	}
	if busy != nil && !l.stated() {
		fmt.Fprintf(&b, "; %s probes it", cmp.Or(busy.By, "another"))
	}
	return b.String()
}
