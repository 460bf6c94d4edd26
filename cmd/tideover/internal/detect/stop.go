package detect

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// Stop describes why a command stopped.
type Stop struct {
	Reason   Reason    `json:"reason"`
	Terminal bool      `json:"terminal"`          // waiting does not help
	Until    time.Time `json:"until,omitzero"`    // when it can continue; zero if not stated
	Stated   string    `json:"stated,omitempty"`  // the words that Until was parsed from
	As       string    `json:"as,omitempty"`      // the format of Stated; "rule" and "rule-time" mean that the rule sets Until
	Note     string    `json:"note,omitempty"`    // remark, such as why a time was not used
	Trust    Trust     `json:"trust"`             // kind of evidence
	Pack     string    `json:"pack"`              // pack of the rule; without a rule, the pack of the detector
	Rule     string    `json:"rule,omitempty"`    // id of the rule; "" if the exit code decided
	Line     string    `json:"line,omitempty"`    // matching line, normalised and shortened
	Number   int       `json:"number,omitempty"`  // of the line, from 1
	Meaning  string    `json:"meaning,omitempty"` // of the exit code

	fallback bool // Rule.Fallback of the rule that decided
	grammar  bool // the grammar decided, and no rule of a pack
	spoken   bool // the text of an event decided, with the words of an assistant
}

// Stop returns why the command stopped. code is its exit code, negative if it is unknown, and 128
// plus the number of a signal that ended it, as in a shell. Output without a line end counts as a
// line. Stop may be called repeatedly, also between writes.
func (d *Detector) Stop(code int) Stop {
	d.mu.Lock()
	defer d.mu.Unlock()
	stop, _ := d.decide(code)
	return stop
}

// decide returns the verdict, and all matches with their own verdicts.
func (d *Detector) decide(code int) (Stop, []match) {
	d.endLines()
	list := append(slices.Clone(d.events), d.matcher.matchLines(&d.lines, d.traced)...)
	slices.SortFunc(list, func(a, b match) int { return cmp.Compare(a.order, b.order) })
	byExit := stopByExit(d.pack, code)
	done := byExit.Reason == Completed && !saysFailed(list)
	ranking := ranking{list: list, lines: &d.lines, done: done, foreign: d.foreign, certain: byExit.Reason == UserExit || byExit.Meaning != ""}
	alive := ranking.void()
	best, fallback := choose(list)
	switch {
	case best >= 0:
		return verdict(list, best, d.options.Location), list
	case alive >= 0 && byExit.Reason == Crashed && d.lines.count-list[alive].count <= lastWords:
		return givenUp(list, alive, byExit), list
	case fallback >= 0 && (byExit.Reason == Completed || byExit.Reason == Crashed || byExit.Reason == Unknown):
		return verdict(list, fallback, d.options.Location), list
	default:
		return byExit, list
	}
}

// saysFailed reports whether the last event about the outcome reports a failure. Then exit code 0
// does not mean success.
func saysFailed(list []match) (failed bool) {
	for i := range list {
		switch m := &list[i]; {
		case m.isEvent() && m.rule.Fallback:
			failed = true
		case m.isEvent() && m.rule.Alive:
			failed = false
		}
	}
	return failed
}

// endLines processes incomplete lines as if they had ended.
func (d *Detector) endLines() {
	d.cut = true
	for _, s := range d.streams {
		if len(s.partial) > 0 {
			s.endLine(cmp.Or(d.options.At, d.at, time.Now()))
		}
	}
	d.cut = false
}

// verdict returns the Stop for the match list[best]. If that match states no time, it uses the time
// of the last match near it with the same reason: a message may have two lines.
func verdict(list []match, best int, zone *time.Location) Stop {
	m := &list[best]
	got, from := m.reading, -1
	for i, other := range list {
		if i == best || other.verdict != "" {
			continue
		}
		list[i].verdict = "less important than line " + strconv.Itoa(m.number)
		if m.reading.until.IsZero() && !m.rule.Terminal && !other.reading.until.IsZero() && other.rule.Reason == m.rule.Reason && beside(m, &other) {
			got, from = other.reading, i
		}
	}
	if from >= 0 {
		list[from].verdict = "states the time for line " + strconv.Itoa(m.number)
	}
	m.verdict = "decides"
	if !got.until.IsZero() {
		got.until = got.until.In(zone)
	}
	return Stop{
		Reason: m.rule.Reason, Terminal: m.rule.Terminal, Until: got.until, Stated: got.stated, As: got.as, Note: got.note,
		Trust: m.rule.trust, Pack: m.rule.pack, Rule: m.rule.ID, Line: m.line, Number: m.number,
		fallback: m.rule.Fallback, grammar: m.grammar, spoken: m.grammar && m.said && m.spoken,
	}
}

// limitWords matches words that messages about limits contain.
var limitWords = lazyregexp.New(`(?i)\b(?:rate|usage|request|token)s?[ _-]?limit|\bquota\b|\btoo many requests\b|\blimit (?:is |was |has been )?(?:reached|exceeded|hit)\b|\b(?:try again|retry) (?:at|in|after)\b|\bresets? (?:at|in)\b`)

// NotUnderstood is the note on a stop that no rule explains, although the output looks like the
// message of a limit.
const NotUnderstood = "not recognised as a limit: 'tideover detect --explain' shows why; to add a rule, see docs/detect.md"

// Misread returns NotUnderstood if the stop counts as a crash although the last lines contain words
// that messages about limits have; else "".
func (s *Stop) Misread(tail []string) string {
	last := tail[max(len(tail)-lastWords, 0):]
	if s.Reason == Crashed && s.Rule == "" && slices.ContainsFunc(last, limitWords.MatchString) {
		return NotUnderstood
	}
	return ""
}

// stopByExit returns the verdict of the exit code alone.
func stopByExit(pack *Pack, code int) Stop {
	s := Stop{Trust: ByExit, Pack: pack.Name()}
	known, ok := pack.exits[code]
	switch {
	case ok:
		s.Reason, s.Meaning = known.Reason, known.Meaning
		s.Terminal = known.Reason == Terminal
	case code == 0:
		s.Reason = Completed
	case code == 129, code == 130, code == 143: // of HUP, INT and TERM
		s.Reason, s.Meaning = UserExit, "ended by HUP, INT or TERM"
	case code < 0:
		s.Reason = Unknown
	default:
		s.Reason = Crashed
	}
	return s
}

// givenUp returns the verdict on a program that printed that it is retrying, and ended because of
// the failure that it retried. It states no time: the time until the next retry is not the end of a
// limit.
func givenUp(list []match, alive int, byExit Stop) Stop {
	m := &list[alive]
	last := m.count
	for i := alive - 1; i >= 0 && m.rule.Reason == Unknown && m.rule.trust != ByEvent; i-- { // an event reports success
		if last-list[i].count <= lastWords && list[i].rule.Reason != Unknown {
			m = &list[i]
		}
	}
	if m.rule.Reason == Unknown {
		return byExit
	}
	m.verdict = "decides: the program was retrying and then failed"
	return Stop{
		Reason: m.rule.Reason, Note: "the program was retrying when it ended", Trust: m.rule.trust,
		Pack: m.rule.pack, Rule: m.rule.ID, Line: m.line, Number: m.number,
	}
}

// Reason is why a command stopped.
type Reason uint8

// The reasons.
const (
	Unknown     Reason = iota
	RateLimit          // a rate or usage limit: the command can continue later
	ContextFull        // the context is full: the work can continue in a new session
	Terminal           // waiting does not help: no credits, a spending cap, not logged in
	Overloaded         // the server is temporarily overloaded
	UserExit           // the user ended it
	Completed
	Crashed
)

var reasonNames = []string{"unknown", "rate-limit", "context-full", "terminal", "overloaded", "user-exit", "completed", "crashed"}

// String returns the name that packs use.
func (r Reason) String() string {
	if int(r) < len(reasonNames) {
		return reasonNames[r]
	}
	return fmt.Sprintf("Reason(%d)", uint8(r))
}

// ParseReason is the inverse of [Reason.String].
func ParseReason(name string) (Reason, error) {
	if i := slices.Index(reasonNames, name); i >= 0 {
		return Reason(i), nil
	}
	return Unknown, fmt.Errorf("reason %q is unknown: want one of %s", name, strings.Join(reasonNames, ", "))
}

// MarshalText implements [encoding.TextMarshaler].
func (r Reason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (r *Reason) UnmarshalText(text []byte) (err error) {
	*r, err = ParseReason(string(text))
	return err
}

// Trust is the kind of evidence of a verdict. A higher value is more reliable.
type Trust uint8

// The kinds of evidence, the least reliable first.
const (
	ByExit   Trust = iota // the exit code alone
	ByLine                // a match in the last lines
	ByHeader              // a response header in the last lines
	ByEvent               // a line of JSON
)

// String returns the name.
func (t Trust) String() string {
	return [...]string{"exit", "line", "header", "event"}[min(t, ByEvent)]
}

// MarshalText implements [encoding.TextMarshaler].
func (t Trust) MarshalText() ([]byte, error) { return []byte(t.String()), nil }
