package nostr

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func testSub(t testing.TB) *subscription {
	t.Helper()
	return &subscription{
		subscriptionSpec: newSubscriptionSpec(1, "jobs", start.Add(-10*time.Minute), []Filter{{Kinds: []int{5900}}}),
		overlap:          2 * time.Minute, every: 5 * time.Minute, pace: testPace(t),
	}
}

// wantAsked checks that the relay is asked now, for events not older than
// before start.
func wantAsked(t testing.TB, s *subscription, now time.Time, before time.Duration) {
	t.Helper()
	m, _ := s.due(now)
	if m == nil || m.Type != TypeReq {
		t.Fatalf("due: %+v, want a REQ", m)
	}
	if got := start.Sub(time.Unix(m.Filters[0].Since, 0)); got != before {
		t.Fatalf("since is %v before the start, want %v", got, before)
	}
}

func wantQuiet(t testing.TB, s *subscription, now time.Time, next time.Duration) {
	t.Helper()
	if m, at := s.due(now); m != nil || at.Sub(now) != next {
		t.Fatalf("due: %+v, in %v, want nothing, in %v", m, at.Sub(now), next)
	}
}

func TestSubscriptionAsksSinceTheLastContact(t *testing.T) {
	t.Parallel()
	s := testSub(t)
	wantAsked(t, s, start, 10*time.Minute)
	s.linkLost(start.Add(time.Minute)) // before all stored events came
	wantAsked(t, s, start.Add(2*time.Minute), 10*time.Minute)
	if !s.markStored() || s.markStored() {
		t.Error("eose: want it to be news once")
	}
	s.linkLost(start.Add(4 * time.Minute))
	wantAsked(t, s, start.Add(5*time.Minute), -2*time.Minute)
	s.linkLost(start.Add(5 * time.Minute)) // before all stored events came again
	wantAsked(t, s, start.Add(6*time.Minute), -2*time.Minute)
}

func TestSubscriptionNeverAsksForOlderThanTheCallerDid(t *testing.T) {
	t.Parallel()
	s := testSub(t)
	s.subscriptionSpec = newSubscriptionSpec(1, "jobs", start, []Filter{{}, {Since: start.Unix() + 60}})
	wantAsked(t, s, start, 0)
	s.markStored()
	s.linkLost(start.Add(time.Second))
	m, _ := s.due(start.Add(2 * time.Second))
	if m.Filters[0].Since != start.Unix() || m.Filters[1].Since != start.Unix()+60 {
		t.Errorf("asked for %+v, want since as the caller said", m.Filters)
	}
	if s.matches(&Event{CreatedAt: start.Unix() - 1}) || !s.matches(&Event{CreatedAt: start.Unix()}) {
		t.Error("matches: want only what is not older than the caller said")
	}
}

func TestSubscriptionIsSweptEveryFiveMinutes(t *testing.T) {
	t.Parallel()
	s := testSub(t)
	wantAsked(t, s, start, 10*time.Minute)
	s.markStored()
	wantQuiet(t, s, start.Add(time.Minute), 4*time.Minute)
	s.linkLost(start.Add(3 * time.Minute))
	wantAsked(t, s, start.Add(4*time.Minute), -time.Minute)
	s.markStored()
	// The sweep goes back to the previous sweep, not to the outage.
	wantQuiet(t, s, start.Add(4*time.Minute), time.Minute)
	wantAsked(t, s, start.Add(5*time.Minute), 2*time.Minute)
	wantQuiet(t, s, start.Add(6*time.Minute), 4*time.Minute) // no EOSE yet
	s.markStored()
	wantAsked(t, s, start.Add(10*time.Minute), -3*time.Minute)
}

func TestSubscriptionThatWasAwayForLongIsSweptAtOnce(t *testing.T) {
	t.Parallel()
	s := testSub(t)
	wantAsked(t, s, start, 10*time.Minute)
	s.markStored()
	s.linkLost(start.Add(4 * time.Minute))
	wantAsked(t, s, start.Add(time.Hour), 2*time.Minute)
}

func TestSubscriptionThatIsClosedWaits(t *testing.T) {
	t.Parallel()
	for text, waits := range map[string][]time.Duration{
		"rate-limited: slow":         {1 * time.Second, 2 * time.Second, 4 * time.Second},
		"error: disk":                {1 * time.Second, 2 * time.Second, 4 * time.Second},
		"":                           {1 * time.Second, 2 * time.Second, 4 * time.Second},
		"blocked: no":                {5 * time.Minute, 5 * time.Minute},
		"restricted: no":             {5 * time.Minute, 5 * time.Minute},
		"unsupported: filter":        {5 * time.Minute, 5 * time.Minute},
		"invalid: filter \x00\u202e": {5 * time.Minute},
	} {
		s, now := testSub(t), start
		for _, wait := range waits {
			if m, _ := s.due(now); m == nil || m.Type != TypeReq {
				t.Fatalf("%q: due: %+v, want a REQ", text, m)
			}
			s.handleClosed(&Message{Text: text}, now)
			wantQuiet(t, s, now, wait)
			s.linkLost(now) // another link does not make it sooner
			wantQuiet(t, s, now, wait)
			now = now.Add(wait)
			if strings.ContainsAny(s.trouble, "\x00\u202e") || text != "" && s.trouble == "" {
				t.Errorf("%q: trouble is %q, want it printable", text, s.trouble)
			}
		}
		s.due(now)
		if s.markStored(); s.trouble != "" {
			t.Errorf("%q: trouble is %q after EOSE, want none", text, s.trouble)
		}
	}
}

func TestSubscriptionThatWasOpenForLongStartsTheWaitsAgain(t *testing.T) {
	t.Parallel()
	s, now := testSub(t), start
	for range 5 {
		s.due(now)
		s.handleClosed(&Message{Text: "error: x"}, now)
		now = s.at
	}
	s.due(now)
	now = now.Add(time.Minute)
	s.handleClosed(&Message{Text: "error: x"}, now)
	wantQuiet(t, s, now, time.Second)
}

func TestWireIDsAreShort(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", strings.Repeat("x", 100), strings.Repeat("é", 100), "\xff\xfe"} {
		if got := wireID(1<<40, name); len(got) > 64 || !utf8.ValidString(got) {
			t.Errorf("wireID(%q): %q, want 64 bytes at most", name, got)
		}
	}
}
