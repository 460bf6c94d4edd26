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
	w := outageWords{list: list}
	if w.is("from") {
		o = w.single()
	} else {
		o = w.repeated()
	}
	o.As = Answer{Status: 503}
	if w.err == nil && w.is("as") {
		o.As, w.err = parseAnswer(w.next())
	}
	switch {
	case w.err != nil:
	case o.For <= 0:
		w.err = fmt.Errorf("down: the outage lasts %v: it must end after it begins", o.For)
	case o.Every != 0 && o.For >= o.Every:
		w.err = errors.New("down: the outage must end before it begins again")
	}
	return o, w.list, w.err
}

// outageWords reads the words of an outage. It keeps the first error.
type outageWords struct {
	list []string
	err  error
}

// next reads a word; "" if there is none.
func (w *outageWords) next() (word string) {
	if len(w.list) > 0 {
		word, w.list = w.list[0], w.list[1:]
	}
	return word
}

// is reads the word if it is the next one, and reports whether it is.
func (w *outageWords) is(word string) bool {
	if len(w.list) == 0 || w.list[0] != word {
		return false
	}
	w.list = w.list[1:]
	return true
}

// want reads a word that must be the next one, as in the example.
func (w *outageWords) want(word, example string) {
	if w.err == nil && !w.is(word) {
		w.err = fmt.Errorf("down: found %q instead of %s; want %s", w.next(), word, example)
	}
}

// span reads a duration. after is the word before it.
func (w *outageWords) span(after string) (d time.Duration) {
	word := w.next()
	if w.err != nil {
		return 0
	}
	if d, w.err = parseDuration(word); w.err != nil {
		w.err = fmt.Errorf("down: after %q: %w; want down 30s every 5m, or down from 10s to 25s", after, w.err)
	}
	return d
}

// single reads an outage that happens once, after the word from.
func (w *outageWords) single() (o Outage) {
	o.From = w.span("from")
	w.want("to", "down from 10s to 25s")
	o.For = w.span("to") - o.From
	if w.is("after") {
		w.want("start", "down from 10s to 25s after start")
	}
	return o
}

// repeated reads an outage that happens again and again.
func (w *outageWords) repeated() (o Outage) {
	o.For = w.span("down")
	w.want("every", "down 30s every 5m")
	o.Every = w.span("every")
	o.From = o.Every
	if w.is("from") {
		o.From = w.span("from")
	}
	if w.err == nil && o.Every == 0 {
		w.err = errors.New("down: the time after every must be above zero")
	}
	return o
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
