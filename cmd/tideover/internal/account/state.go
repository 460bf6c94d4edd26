package account

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

const (
	// ProvenAfter is how long a command must run without a limit to prove that the limit is over.
	ProvenAfter = 2 * time.Minute

	// DefaultSpread is the default of Asker.Spread in callers of this package.
	DefaultSpread = 30 * time.Second

	// maxStated is the longest stated wait that is believed. The longest known limits are monthly.
	maxStated = 60 * 24 * time.Hour

	// maxProbeDelay is the longest delay before a probe.
	maxProbeDelay = 24 * time.Hour

	// forgetAfter is the age at which a limit without a stated end is dropped.
	forgetAfter = 24 * time.Hour

	// leaseTime is how long others wait for a probe whose process neither reports a result nor ends, for example because
	// the process is stopped.
	leaseTime = ProvenAfter + time.Minute

	// minWait is the shortest wait of a held asker.
	minWait = time.Second

	maxText = 500 // stored bytes of a text
)

// stateVersion is the version of the file.
const stateVersion = 1

// state is the state of an account, and the content of its file.
type state struct {
	Version int    `json:"version"`
	Serial  int64  `json:"serial"` // number of changes
	Limit   *limit `json:"limit,omitempty"`
	Probe   *probe `json:"probe,omitempty"` // in progress
}

// limit is a limit that an asker ran into.
type limit struct {
	moment
	Serial int64         `json:"serial"`                  // of the change that recorded it
	ID     string        `json:"id"`                      // of the asker
	By     string        `json:"by"`                      // its name
	Why    string        `json:"why,omitempty"`           // line of output with the limit
	Wait   time.Duration `json:"wait_ns,omitempty"`       // time from the moment to the end; 0 if the end is unknown
	Until  time.Time     `json:"until,omitzero"`          // the end as a date and time, if it was stated as one
	Next   time.Duration `json:"next_probe_ns,omitempty"` // time from the moment to the asker's probe; only without Wait
}

// probe is an asker that probes whether a limit is over.
type probe struct {
	moment
	ID string `json:"id"`
	By string `json:"by"`
}

// validate rejects values that this program never writes.
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

// rebase corrects moments in the future, and reports whether there were any.
func (s *state) rebase(now moment) (changed bool) {
	if s.Limit != nil {
		changed = s.Limit.rebase(now)
	}
	if s.Probe != nil {
		changed = s.Probe.rebase(now) || changed
	}
	return changed
}

// setLimit replaces the limit by one that the asker ran into, which ends as r says.
func (s *state) setLimit(a *Asker, r Reset, why string, now moment) {
	s.Limit = &limit{
		moment: now, Serial: s.Serial + 1, ID: a.ID, By: shorten(a.Name), Why: shorten(why), Wait: r.wait(now),
	}
	if s.Limit.stated() && r.In == 0 {
		s.Limit.Until = r.At.Round(0)
	}
}

// shorten returns the part of a text that is stored.
func shorten(text string) string { return textfmt.TruncateValid(text, maxText, "…") }

// stated reports whether the end of the limit is known.
func (l *limit) stated() bool { return l.Wait > 0 }

// left returns the time until a stated limit ends. A limit that ends at a date and time ends when the
// wall clock reaches it, but at the latest after Wait, in case the clock was set back.
func (l *limit) left(now moment) time.Duration {
	left := l.Wait - l.elapsed(now)
	if !l.Until.IsZero() {
		left = min(left, l.Until.Sub(now.At))
	}
	return left
}

// isOver reports whether the limit has ended, or is too old to count.
func (l *limit) isOver(now moment) bool {
	if l.stated() {
		return l.left(now) <= 0
	}
	return l.elapsed(now) >= forgetAfter
}

// nextProbe returns the time until the next probe of a limit without a stated end; at most 0 if it is due.
func (l *limit) nextProbe(now moment) time.Duration {
	if l.stated() {
		return 0
	}
	return l.Next - l.elapsed(now)
}

// active returns the limit if it has not ended, else nil.
func (s *state) active(now moment) *limit {
	if s.Limit == nil || s.Limit.isOver(now) {
		return nil
	}
	return s.Limit
}

// probedBy returns the probe of an asker other than id; nil if there is none. A probe that is too old
// does not count.
func (s *state) probedBy(id string, now moment) *probe {
	if p := s.Probe; p != nil && p.ID != id && p.elapsed(now) < leaseTime {
		return p
	}
	return nil
}

// heldFor returns how long the limit makes the asker wait; nil if the asker may use the account.
// busy is the probe in progress, or nil.
func (l *limit) heldFor(account string, a *Asker, busy *probe, now moment) *Held {
	if l.stated() {
		// The asker that found the limit knows its end and waits on its own. An asker whose policy
		// does not accept so long a wait is let through: it runs into the limit and gives up.
		left := l.left(now)
		if l.ID == a.ID || left > a.Longest || left+a.Slack <= 0 {
			return nil
		}
		h := newHeld(left+a.Slack, a, l.describe(account, busy, now))
		h.Stated = true
		return h
	}
	if busy != nil {
		return newHeld(ProvenAfter-busy.elapsed(now), a, l.describe(account, busy, now))
	}
	if next := l.nextProbe(now); next > 0 && l.ID != a.ID {
		return newHeld(next, a, l.describe(account, nil, now))
	}
	return nil
}

// newHeld returns a Held that waits for the given time plus a random part of the asker's spread.
func newHeld(wait time.Duration, a *Asker, why string) *Held {
	return &Held{Wait: max(wait, minWait) + Jitter(a.Spread), Why: HeldPrefix + why}
}

// Jitter returns a random duration below the spread.
func Jitter(spread time.Duration) time.Duration {
	return time.Duration(rand.Int64N(int64(max(spread, 1))))
}

// HeldPrefix is the beginning of Held.Why. It must not change, because stored runs contain it.
const HeldPrefix = "held: account "

// describe describes the limit in words, beginning with the name of the account.
func (l *limit) describe(account string, busy *probe, now moment) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s is limited", account)
	if l.stated() {
		fmt.Fprintf(&b, " until %s", now.At.Add(l.left(now)).Local().Format("Jan 2 15:04:05 MST"))
	} else {
		b.WriteString(", " + Unstated)
	}
	fmt.Fprintf(&b, ", reported by %s", cmp.Or(l.By, "another asker"))
	if l.Why != "" {
		fmt.Fprintf(&b, ": %s", l.Why)
	}
	switch next := l.nextProbe(now); {
	case busy != nil && !l.stated():
		fmt.Fprintf(&b, "; %s is probing it", cmp.Or(busy.By, "another asker"))
	case next > 0:
		b.WriteString("; " + ProbeAt(now.At.Add(next)))
	}
	return b.String()
}

// Unstated occurs in the description of each limit without a stated end.
const Unstated = "without a stated end"

// ProbeAt says in words when a limit is probed next.
func ProbeAt(t time.Time) string { return "next probe at " + t.Local().Format("15:04:05 MST") }

// moment is a point in time on two clocks: the wall clock, which can be set, and the uptime, which
// can't.
type moment struct {
	At     time.Time     `json:"at"`
	Uptime time.Duration `json:"uptime_ns,omitempty"` // time since the boot, including sleep
	Boot   string        `json:"boot,omitempty"`      // id of the boot; "" if unknown
}

// elapsed returns the time from m to now by the uptime, or after a reboot by the wall clock. It is
// never negative.
func (m moment) elapsed(now moment) time.Duration {
	if m.sameBoot(now) {
		return now.Uptime - m.Uptime
	}
	return max(now.At.Sub(m.At), 0)
}

func (m moment) sameBoot(now moment) bool {
	return m.Boot != "" && m.Boot == now.Boot && now.Uptime >= m.Uptime
}

// rebase sets a moment that is in the future to now, and reports whether it did. Such a moment
// means that the clock was set back; a wait that starts at it would last until the clock reaches it
// again.
func (m *moment) rebase(now moment) bool {
	if m.sameBoot(now) || !now.At.Before(m.At) {
		return false
	}
	*m = now
	return true
}
