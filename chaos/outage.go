package chaos

import (
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// parseOutage reads the words after down. There are two forms: "30s every 5m", with "from
// 10s" if the first outage begins at another time than 5m; and "from 10s to 25s",
// optionally with "after start". Both may end with "as" and an answer. It returns the
// words that it did not read.
func parseOutage(list []string) (o Outage, rest []string, err error) {
	o.As = Answer{Status: 503}
	next := func() string {
		if len(list) == 0 {
			return ""
		}
		word := list[0]
		list = list[1:]
		return word
	}
	is := func(word string) bool {
		if len(list) > 0 && list[0] == word {
			list = list[1:]
			return true
		}
		return false
	}
	span := func(after string) (d time.Duration) {
		word := next()
		if err != nil {
			return 0
		}
		if d, err = parseDuration(word); err != nil {
			err = fmt.Errorf("down: after %q: %w; want down 30s every 5m, or down from 10s to 25s", after, err)
		}
		return d
	}
	if is("from") {
		o.From = span("from")
		if err == nil && !is("to") {
			err = fmt.Errorf("down: found %q instead of to; want down from 10s to 25s", next())
		}
		o.For = span("to") - o.From
		if is("after") && !is("start") && err == nil {
			err = fmt.Errorf("down: found %q instead of start; want down from 10s to 25s after start", next())
		}
	} else {
		o.For = span("down")
		if err == nil && !is("every") {
			err = fmt.Errorf("down: found %q instead of every; want down 30s every 5m", next())
		}
		o.Every = span("every")
		o.From = o.Every
		if is("from") {
			o.From = span("from")
		}
		if err == nil && o.Every == 0 {
			err = errors.New("down: the time after every must be above zero")
		}
	}
	if err == nil && is("as") {
		o.As, err = parseAnswer(next())
	}
	switch {
	case err != nil:
	case o.For <= 0:
		err = fmt.Errorf("down: the outage lasts %v: it must end after it begins", o.For)
	case o.Every != 0 && o.For >= o.Every:
		err = errors.New("down: the outage must end before it begins again")
	}
	return o, list, err
}

// String returns the text form of the outage, without the word down.
func (o Outage) String() string {
	text := "from " + textfmt.PolicyDuration(o.From) + " to " + textfmt.PolicyDuration(o.From+o.For)
	if o.Every != 0 {
		text = textfmt.PolicyDuration(o.For) + " every " + textfmt.PolicyDuration(o.Every)
		if o.From != o.Every {
			text += " from " + textfmt.PolicyDuration(o.From)
		}
	}
	if as := o.As.String(); !o.As.zero() && as != "503" {
		text += " as " + as
	}
	return text
}

// when reports whether the outage is active at this time since the start, and how long
// until that changes; 0 means that it never changes.
func (o Outage) when(elapsed time.Duration) (down bool, left time.Duration) {
	since := elapsed - o.From
	if since >= 0 && o.Every > 0 {
		since %= o.Every
	}
	switch {
	case since < 0:
		return false, -since
	case since < o.For:
		return true, o.For - since
	case o.Every > 0:
		return false, o.Every - since
	}
	return false, 0
}
