package notify

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// TriggerEvents are the words of a notifier's `on`.
var TriggerEvents = []string{"gave-up", "waiting", "resumed", "breaker-open", "recovered", "dead-letter", "storm", "start-refused"}

// Trigger is one kind of event that a notifier sends messages about.
type Trigger struct {
	Event string        // such as gave-up
	Over  time.Duration // of waiting: only waits longer than this; 0 means all
}

// ParseTrigger parses an entry of `on`, such as gave-up or waiting>30m.
func ParseTrigger(s string) (Trigger, error) {
	word, length, long := strings.Cut(s, ">")
	t := Trigger{Event: strings.TrimSpace(word)}
	if !slices.Contains(TriggerEvents, t.Event) {
		if near := strictyaml.Nearest(t.Event, TriggerEvents); near != "" {
			return Trigger{}, fmt.Errorf("%q is not an event; did you mean %q?", t.Event, near)
		}
		return Trigger{}, fmt.Errorf("%q is not an event; want %s", t.Event, strings.Join(TriggerEvents, ", "))
	}
	if !long {
		return t, nil
	}
	if t.Event != "waiting" {
		return Trigger{}, fmt.Errorf("%q: only waiting has a length", s)
	}
	var err error
	if t.Over, err = retry.ParseDuration(strings.TrimSpace(length)); err != nil {
		return Trigger{}, err
	}
	if t.Over == 0 {
		return Trigger{}, fmt.Errorf("%q: the length must be above zero; write waiting for every wait", s)
	}
	return t, nil
}

// String returns the trigger as it is written.
func (t Trigger) String() string {
	if t.Over == 0 {
		return t.Event
	}
	return t.Event + ">" + textfmt.CompactDuration(t.Over)
}

// MaxRate is the largest N of a [Rate].
const MaxRate = 1000

// Rate is at most N in any period of Per. The zero Rate is no limit.
type Rate struct {
	N   int
	Per time.Duration
}

var rateUnits = map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour}

// ParseRate reads a rate such as 5/h.
func ParseRate(s string) (Rate, error) {
	count, unit, _ := strings.Cut(s, "/")
	per, ok := rateUnits[unit]
	n, err := strconv.ParseUint(count, 10, 31)
	switch {
	case !ok || err != nil:
		return Rate{}, fmt.Errorf("%q is not a rate such as 5/h; the units are s, m, h and d", s)
	case n == 0:
		return Rate{}, fmt.Errorf("%q would let nothing through", s)
	case n > MaxRate:
		return Rate{}, fmt.Errorf("%q is too much; at most %d are counted", s, MaxRate)
	}
	return Rate{N: int(n), Per: per}, nil
}

// String returns the rate as it is written; "" for no limit.
func (r Rate) String() string {
	for unit, per := range rateUnits {
		if r.Per == per {
			return strconv.Itoa(r.N) + "/" + unit
		}
	}
	return ""
}
