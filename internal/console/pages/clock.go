package pages

import (
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// SpacedDuration formats a duration with its one or two largest units, such as "2 min 05 s".
// static/app.js has the same function, which rewrites the text every second.
func SpacedDuration(d time.Duration) string {
	s := int64(d.Round(time.Second) / time.Second)
	switch {
	case s < 60:
		return fmt.Sprintf("%d s", max(s, 0))
	case s < 3600:
		return fmt.Sprintf("%d min %02d s", s/60, s%60)
	case s < 86400:
		return fmt.Sprintf("%d h %02d min", s/3600, s/60%60)
	}
	return fmt.Sprintf("%d d %02d h", s/86400, s/3600%24)
}

// Exact formats a duration with about three digits, such as "1.25 s".
func Exact(d time.Duration) string {
	if d >= time.Minute {
		return SpacedDuration(d)
	}
	text := textfmt.MeasuredDuration(d)
	unit := strings.TrimLeft(text, "0123456789.")
	return strings.TrimSuffix(text, unit) + " " + unit
}

// Round formats a duration that has few digits, such as "500 µs", "2 s" or "15 min".
func Round(d time.Duration) string {
	if d < time.Minute {
		text := textfmt.ShortDuration(d)
		unit := strings.TrimLeft(text, "0123456789.")
		return strings.TrimSuffix(text, unit) + " " + strings.Replace(unit, "u", "µ", 1)
	}
	text := SpacedDuration(d)
	for _, zero := range []string{" 00 s", " 00 min", " 00 h"} {
		text = strings.TrimSuffix(text, zero)
	}
	return text
}

// Formats of times. They contain the time zone, which is that of the server; JavaScript, if enabled,
// converts times to the time zone of the browser.
const (
	stampLayout = "2006-01-02 15:04:05 MST (-07:00)"
	clockLayout = "15:04:05 MST"
	DayLayout   = "2 Jan 15:04:05 MST"
)

func stamp(t time.Time) string { return t.Format(stampLayout) }

func timeElement(t time.Time, kind, text string) template.HTML {
	return template.HTML(fmt.Sprintf(`<time datetime="%s" data-%s title="%s">%s</time>`,
		t.UTC().Format("2006-01-02T15:04:05.000Z"), kind, template.HTMLEscapeString(stamp(t)), template.HTMLEscapeString(text)))
}

// ago renders the time since t.
func ago(now, t time.Time) template.HTML {
	return timeElement(t, "ago", SpacedDuration(now.Sub(t))+" ago")
}

// in renders the time until t, which counts down.
func in(now, t time.Time) template.HTML {
	if !t.After(now) {
		return timeElement(t, "in", "due now")
	}
	return timeElement(t, "in", "in "+SpacedDuration(t.Sub(now)))
}

// since renders the time since t, which counts up.
func since(now, t time.Time) template.HTML {
	return timeElement(t, "since", SpacedDuration(now.Sub(t)))
}

// at renders a time, with the day if it is not today.
func at(now, t time.Time) template.HTML {
	layout := DayLayout
	if now.Format(time.DateOnly) == t.In(now.Location()).Format(time.DateOnly) {
		layout = clockLayout
	}
	return timeElement(t, "at", t.Format(layout))
}
