package limit

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// Frequency is a number of events per unit of time: 50 per minute. It is
// comparable, and its zero value is not valid.
type Frequency struct {
	Events int           // at least 1
	Per    time.Duration // above zero
}

const day = 24 * time.Hour

// maxPer limits Frequency.Per, so that times in ticks (at most two per
// nanosecond) fit into an int64.
const maxPer = 366 * day

// spans are the units that have a name in the text form of a frequency.
var spans = [...]struct {
	name string
	per  time.Duration
}{{"s", time.Second}, {"min", time.Minute}, {"h", time.Hour}, {"d", day}}

// String returns the frequency in its text form, such as "50/min". Units other
// than second, minute, hour and day are written as durations: "1/1.5s".
func (f Frequency) String() string { return strconv.Itoa(f.Events) + "/" + spanName(f.Per) }

func spanName(per time.Duration) string {
	for _, s := range spans {
		if per == s.per {
			return s.name
		}
	}
	return textfmt.CompactDuration(per)
}

// ParseRate parses a frequency: a number of events, a slash and a unit, which
// is s, min, h, d, a Go duration or a number of days such as 2d.
func ParseRate(s string) (Frequency, error) {
	events, span, ok := strings.Cut(s, "/")
	n, err1 := strconv.Atoi(events)
	per, err2 := parseSpan(span)
	if !ok || strings.Trim(events, "0123456789") != "" || err1 != nil || err2 != nil {
		return Frequency{}, fmt.Errorf("rate %q: want events per s, min, h, d or duration, like 50/min or 1/1.5s", s)
	}
	f := Frequency{n, per}
	if problems := f.problems(); problems != nil {
		return Frequency{}, fmt.Errorf("rate %q: %s", s, strings.Join(problems, "; "))
	}
	return f, nil
}

func parseSpan(s string) (time.Duration, error) {
	for _, named := range spans {
		if s == named.name {
			return named.per, nil
		}
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseUint(days, 10, 16)
		return time.Duration(n) * day, err
	}
	return time.ParseDuration(s)
}

// Validate reports everything that is wrong with the frequency.
func (f Frequency) Validate() error { return joinProblems("rate", f.problems()) }

func (f Frequency) problems() []string {
	var problems []string
	if f.Events < 1 {
		problems = append(problems, fmt.Sprintf("%d events: want at least 1", f.Events))
	}
	switch {
	case f.Per <= 0:
		problems = append(problems, fmt.Sprintf("a span of %v is not above zero", f.Per))
	case f.Per > maxPer:
		problems = append(problems, fmt.Sprintf("a span of %v is above %v", f.Per, maxPer))
	case int64(f.Events) > int64(f.Per):
		problems = append(problems, "more than one event per nanosecond")
	}
	return problems
}
