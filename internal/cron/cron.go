// Package cron reads the text of a schedule and computes when it is due.
package cron

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Schedule is what the text of a schedule says.
type Schedule struct {
	minute, hour, dayOfMonth, month, dayOfWeek set

	zone  *time.Location // nil means that of the time that Next gets
	every time.Duration  // of @every; then nothing else is set
}

// set is the numbers that a field allows, a bit for each.
type set struct {
	bits uint64
	any  bool // an item is * or ?, without a step
	star bool // an item is * or ?, perhaps with a step
}

func (s set) has(n int) bool { return s.bits>>n&1 != 0 }

// from returns the first number of the set that is at least n; 64 or more if there is none.
func (s set) from(n int) int { return n + bits.TrailingZeros64(s.bits>>n) }

// field is one of the five fields of a text.
type field struct {
	name     string
	min, max int
	words    []string // names of the numbers, beginning with min
}

var fields = [...]field{
	{name: "minute", max: 59},
	{name: "hour", max: 23},
	{name: "day of month", min: 1, max: 31},
	{name: "month", min: 1, max: 12, words: strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{name: "day of week", max: 6, words: strings.Fields("sun mon tue wed thu fri sat")},
}

var descriptors = map[string]string{
	"@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *", "@monthly": "0 0 1 * *", "@weekly": "0 0 * * 0",
	"@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@hourly": "0 * * * *",
}

// Parse reads five fields (minute, hour, day of month, month, day of week), a word such as @daily, or
// @every and a Go duration, each optionally after TZ= or CRON_TZ= and a time zone. A schedule that is
// never due is an error.
//
// A strict Parse refuses what another one accepts because stored schedules may have it: an empty item
// in a list, a range from *, which means *, and an interval that is not whole seconds, which is cut.
func Parse(text string, strict bool) (s Schedule, err error) {
	first, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	if name, ok := strings.CutPrefix(strings.TrimPrefix(first, "CRON_"), "TZ="); ok {
		if s.zone, err = time.LoadLocation(name); err != nil {
			return s, fmt.Errorf("%q is not a time zone such as Europe/Berlin or UTC", name)
		}
		text = rest
	}
	parts := strings.Fields(text)
	if len(parts) == 2 && parts[0] == "@every" {
		s.every, err = parseInterval(parts[1], strict)
		return s, err
	}
	if word := strings.Join(parts, " "); strings.HasPrefix(word, "@") {
		if parts = strings.Fields(descriptors[word]); len(parts) == 0 {
			return s, fmt.Errorf("%q is not one of @hourly, @daily, @weekly, @monthly, @yearly, and @every with a duration", word)
		}
	}
	if len(parts) != len(fields) {
		return s, fmt.Errorf("it has %d fields; want 5: minute, hour, day of month, month, day of week", len(parts))
	}
	for i, to := range []*set{&s.minute, &s.hour, &s.dayOfMonth, &s.month, &s.dayOfWeek} {
		if *to, err = fields[i].parse(parts[i], strict); err != nil {
			return s, err
		}
	}
	if _, ok := s.after(0); !ok {
		return s, errors.New("it is never due")
	}
	return s, nil
}

func parseInterval(text string, strict bool) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	whole := max(d.Truncate(time.Second), time.Second)
	if err != nil || strict && d != whole {
		return 0, fmt.Errorf("interval %q is not whole seconds above zero, such as 90s or 1h30m", text)
	}
	return whole, nil
}

// parse reads the list of a field.
func (f field) parse(text string, strict bool) (s set, err error) {
	for item := range strings.SplitSeq(text, ",") {
		if item == "" && !strict {
			continue
		}
		span, by, stepped := strings.Cut(item, "/")
		low, high, star, err := f.span(span, stepped, strict)
		step := 1
		if err == nil && stepped {
			if step, err = strconv.Atoi(by); err != nil || step < 1 {
				err = fmt.Errorf("%q has a step that is not a number above zero", item)
			}
		}
		if err != nil {
			return s, fmt.Errorf("%s %w", f.name, err)
		}
		for n := low; n <= high; n += min(step, 64) {
			s.bits |= 1 << n
		}
		s.star, s.any = s.star || star, s.any || star && step == 1
	}
	return s, nil
}

// span reads an item without its step. open is whether a single number begins a range.
func (f field) span(text string, open, strict bool) (low, high int, star bool, err error) {
	first, last, ranged := strings.Cut(text, "-")
	low, high, star = f.min, f.max, first == "*" || first == "?"
	switch {
	case text == "":
		err = errors.New("has an empty item")
	case star && ranged && strict:
		err = fmt.Errorf("%q is a range that begins with no number", text)
	case !star:
		if low, err = f.number(first); ranged && err == nil {
			high, err = f.number(last)
		} else if !open {
			high = low
		}
	}
	if err == nil && low > high {
		err = fmt.Errorf("%q ends before it begins", text)
	}
	return low, high, star, err
}

// number reads a number of the field, or its name.
func (f field) number(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if i := slices.Index(f.words, strings.ToLower(text)); i >= 0 {
		n, err = f.min+i, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", text)
	}
	if n < f.min || n > f.max {
		return 0, fmt.Errorf("%d is not in %d to %d", n, f.min, f.max)
	}
	return n, nil
}

// Next returns the first time after t at which the schedule is due, in the location of t. An interval
// begins at the second of t.
// With * in the minute or the hour, a schedule is due whenever the clock of its zone shows one of its
// times. Any other is due when the clock first reaches one: when the clock goes forward if it skips the
// time, and once if it shows the time twice. cron(8) does the same.
func (s *Schedule) Next(t time.Time) time.Time {
	if s.every > 0 {
		return t.Add(s.every - time.Duration(t.Nanosecond()))
	}
	start, end, offset := period(t.In(cmp.Or(s.zone, t.Location())))
	clock, byClock := t.Unix()+offset, s.minute.star || s.hour.star
	if !byClock && !start.IsZero() { // what the clock showed before it was set back was due
		_, _, before := period(start.Add(-1))
		clock = max(clock, start.Unix()-1+before)
	}
	due, _ := s.after(clock)
	for !end.IsZero() && due-offset >= end.Unix() { // the clock is set before
		start = end
		if _, end, offset = period(start); byClock {
			due, _ = s.after(start.Unix() - 1 + offset)
		}
	}
	return time.Unix(max(due-offset, start.Unix()), 0).In(t.Location())
}

// period returns when the clock of the zone of t was set last and is set next, zero if never, and how
// many seconds it is ahead of UTC in between.
func period(t time.Time) (start, end time.Time, offset int64) {
	_, ahead := t.Zone()
	if start, end = t.ZoneBounds(); !end.IsZero() && !end.After(t) { // in Go 1.26, on 31 December of a leap year
		end = t.Truncate(24 * time.Hour).Add(24 * time.Hour)
	}
	return start, end, int64(ahead)
}

// after returns the first time of the schedule after the given one, and false if there is none in eight
// years, as long as a 29 February can be away. Both are in seconds, as if the clock were never set.
func (s *Schedule) after(clock int64) (int64, bool) {
	t := time.Unix(clock, 0).UTC().Truncate(time.Minute).Add(time.Minute)
	for last := t.Year() + 8; t.Year() <= last; {
		year, month, day := t.Date()
		hour, minute, _ := t.Clock()
		switch inMonth, inWeek := s.dayOfMonth.has(day), s.dayOfWeek.has(int(t.Weekday())); {
		case !s.month.has(int(month)):
			t = time.Date(year, month+1, 1, 0, 0, 0, 0, time.UTC)
		case !inMonth && !inWeek, (s.dayOfMonth.any || s.dayOfWeek.any) && !(inMonth && inWeek): // fields without * add up
			t = time.Date(year, month, day+1, 0, 0, 0, 0, time.UTC)
		case !s.hour.has(hour):
			t = time.Date(year, month, day, min(s.hour.from(hour), 24), 0, 0, 0, time.UTC)
		case !s.minute.has(minute):
			t = t.Add(time.Duration(min(s.minute.from(minute), 60)-minute) * time.Minute)
		default:
			return t.Unix(), true
		}
	}
	return 0, false
}
