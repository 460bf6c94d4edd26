package session

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/detect"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
)

// A limit without a stated end is probed: the command runs again 5, 10 and 20 minutes after the
// previous one, and then every 30 minutes. This uses neither attempts nor windows. The sessions of an
// account share the probes: see [account.Gate].
const (
	firstProbe   = 5 * time.Minute
	longestProbe = 30 * time.Minute
	probeFor     = 24 * time.Hour // then the session gives up; server-wait may shorten it
)

// probeWait returns the time until the next probe of a limit that is known for this long.
func probeWait(known time.Duration) time.Duration {
	return min(max(known, 0)+firstProbe, longestProbe)
}

// isUnstated reports whether a command stopped at a limit whose end is not stated.
func isUnstated(stop detect.Stop) bool {
	return stop.Reason == detect.RateLimit && !stop.Terminal && stop.Until.IsZero()
}

// limitSince returns since when the session has a limit without a stated end, after a command that
// ran for some time has stopped. before is the value before that command. A limit that was reached
// after the policy's reset-after is a new one.
func (s *Spec) limitSince(before time.Time, stop detect.Stop, ran time.Duration) time.Time {
	reset := s.storedPolicy().ResetAfter
	switch {
	case !isUnstated(stop):
		return time.Time{}
	case before.IsZero() || reset > 0 && ran >= reset:
		return stored(time.Now())
	}
	return before
}

// nextProbe returns the time until the next probe of the limit without a stated end that the session
// has; 0 if it was probed for long enough.
func (m *Memo) nextProbe(s *Spec) time.Duration {
	var known time.Duration
	if !m.LimitSince.IsZero() {
		known = time.Since(m.LimitSince)
	}
	left := min(probeFor, cmp.Or(s.storedPolicy().ServerWait, retry.DefaultServerWait)) - known
	return min(probeWait(known), max(left, 0))
}

// awaitProbe returns the error that ends an attempt because of a limit without a stated end. why says
// why the attempt ended.
func (a *attempt) awaitProbe(m Memo, why string) error {
	wait := m.nextProbe(a.spec)
	if wait == 0 {
		return m.giveUp(fmt.Errorf("%s; the limit has lasted since %s", why, m.LimitSince.Local().Format("Jan 2 15:04:05 MST")))
	}
	return engine.Keep(engine.Snooze(wait, why+"; "+account.Unstated+"; "+account.ProbeAt(time.Now().Add(wait))), m)
}

// giveUp returns the error that ends the session as failed. If an operator resumes it, it counts
// anew.
func (m Memo) giveUp(err error) error {
	m.InARow, m.LimitSince = 0, time.Time{}
	return engine.Keep(retry.Permanent(err), m)
}

// IsProbeWait reports whether a session waits because of a limit without a stated end. note is the
// note of the wait.
func IsProbeWait(note string) bool { return strings.Contains(note, account.Unstated) }
