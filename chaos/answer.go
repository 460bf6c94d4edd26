package chaos

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
)

// maxTimes is the greatest N in a step such as 503xN, which repeats its answer N times.
const maxTimes = 1_000_000

// stepForm matches a step: a status or the name of an act, arguments in parentheses, and x
// with the number of times.
var stepForm = lazyregexp.New(`^([0-9]+|[a-z]+?)(?:\(((?s:.*))\))?(?:x([0-9]+))?$`)

// parseStep reads a step of a script: 503, 429(retry-after=2)x3, reset.
func parseStep(word string) (s Step, err error) {
	m := stepForm.FindStringSubmatch(word)
	if m == nil {
		return s, badAnswer(word)
	}
	s.Times = 1
	if m[3] != "" {
		if s.Times, err = parseCount(m[3], maxTimes); err != nil {
			return s, fmt.Errorf("%q: %w", word, err)
		}
	}
	if slices.Contains(acts, m[1]) {
		s.Act = m[1]
	} else if s.Status, err = strconv.Atoi(m[1]); err != nil || s.Status < 200 || s.Status > 599 {
		return s, badAnswer(word)
	}
	list, err := words(m[2])
	if err != nil {
		return s, err
	}
	seen := map[string]bool{}
	for _, w := range list {
		name, value, _ := strings.Cut(w, "=")
		if name = strings.ToLower(name); seen[name] {
			return s, fmt.Errorf("%q: %q is set twice", word, name)
		}
		seen[name] = true
		if err := s.set(name, value, strings.Contains(w, "=")); err != nil {
			return s, fmt.Errorf("%q: %w", word, err)
		}
	}
	return s, nil
}

// parseAnswer reads an answer without a number of times.
func parseAnswer(word string) (Answer, error) {
	s, err := parseStep(word)
	if err == nil && s.Times != 1 {
		err = fmt.Errorf("%q: only a step of a script can have a number of times", word)
	}
	return s.Answer, err
}

func badAnswer(word string) error {
	return fmt.Errorf("%q is no answer; want a status from 200 to 599, such as 503 or 429(retry-after=2), or one of %s", word, strings.Join(acts, ", "))
}

// set sets one argument or header. given means that there is a value, which may be empty.
func (a *Answer) set(name, value string, given bool) error {
	for _, arg := range arguments() {
		switch {
		case arg.name != name:
			continue
		case arg.flag && given:
			return fmt.Errorf("%q takes no value", name)
		case !arg.flag && !given:
			return fmt.Errorf("%q has no value; want %s=", name, name)
		}
		if err := arg.set(a, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	if !isHeader(name) {
		return fmt.Errorf("%q is no argument of an answer; want one of %s, or a header: %s", name, strings.Join(namesOf(arguments()), ", "), headerNames())
	}
	if !given {
		return fmt.Errorf("header %q has no value; want %s=", name, name)
	}
	text, err := unquote(value)
	if err == nil {
		err = checkHeader(name, text)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	a.Headers = append(a.Headers, Header{name, text})
	return nil
}

// String returns the text form of the answer.
func (a Answer) String() string {
	head := unlessZero(a.Status, strconv.Itoa) + a.Act // parsing rejects an answer that has both
	var list []string
	for _, h := range a.Headers {
		list = append(list, h.Name+"="+enquote(h.Value))
	}
	for _, arg := range arguments() {
		if v := arg.get(&a); v != "" && arg.flag {
			list = append(list, arg.name)
		} else if v != "" {
			list = append(list, arg.name+"="+v)
		}
	}
	if len(list) == 0 {
		return head
	}
	return head + "(" + strings.Join(list, " ") + ")"
}

// String returns the text form of the step.
func (s Step) String() string {
	if s.Times <= 1 {
		return s.Answer.String()
	}
	return s.Answer.String() + "x" + strconv.Itoa(s.Times)
}

// problems returns an error for each combination of status, act and arguments that is not
// allowed. Parsing has already checked each argument alone.
func (a *Answer) problems() []error {
	var found problemList
	only := a.String() != a.Act && (Answer{Act: a.Act, Delay: a.Delay}).String() != a.String()
	found.add(a.Act != "" && only, fmt.Sprintf("%s takes no argument but delay", a.Act))
	found.add(a.Act == Hang && a.Delay != Delay{}, "hang takes no delay: it never ends")
	if a.Act == "" {
		a.streamProblems(&found)
		a.statusProblems(&found)
	}
	return found
}

// streamProblems adds the problems of arguments that need a stream, or that a stream excludes.
func (a *Answer) streamProblems(found *problemList) {
	streams := a.Stream.Form != ""
	rest := a.Stream
	rest.Form = ""
	found.add(!streams && rest != Stream{}, "events, every, error-at and no-done require stream=")
	found.add(streams && a.Body != Body{}, "an answer can't have both a body and a stream")
	found.add(a.RetryInfo != 0 && (streams || a.Body != Body{}), "retry-info sets the body, so it can't be combined with body or stream")
	found.add(streams && a.Chunked, "a stream has no length; leave out chunked")
	found.add(a.Stream.Form == "plain" && a.Stream.NoDone, "a plain stream has no event that marks its end; leave out no-done")
	found.add(!streams && a.End.Kind != "" && a.End.At.Unit == "event", "event: is a position in a stream and requires stream=")
}

// statusProblems adds the problems of arguments that the status excludes.
func (a *Answer) statusProblems(found *problemList) {
	found.add(a.Error != "" && a.Status < 400 && a.Stream.Error == "", "error requires a status of 400 or more, or a stream with error-at")
	found.add(a.RetryInfo != 0 && a.Status < 400, "retry-info requires a status of 400 or more")
	hasBody := a.Body != Body{} || a.Stream.Form != "" || a.RetryInfo != 0 || a.Chunked || a.Dribble != Pace{} || a.End.Kind != ""
	found.add(hasBody && (a.Status == 204 || a.Status == 304), "a response with status 204 or 304 has no body")
}

// problemList has an error for each problem that was found.
type problemList []error

func (l *problemList) add(found bool, text string) {
	if found {
		*l = append(*l, errors.New(text))
	}
}

// usesDue reports whether a header of the answer has the value due, which stands for the
// time until the limit or the outage ends.
func (a *Answer) usesDue() bool {
	return slices.ContainsFunc(a.Headers, func(h Header) bool { return isWait(h.Name) && usesDue(h.Value) })
}

// maxEvents is the greatest number of events of a stream, because they are kept in memory.
const maxEvents = 10_000

// field is a named argument of an answer, or a key of a rule.
type field[P any] struct {
	name string
	flag bool // takes no value
	set  func(to *P, value string) error
	get  func(from *P) string // "" means not set
}

// fieldOf returns the field that at points to. parse reads its text form, and format
// writes it.
func fieldOf[P any, T comparable](name string, at func(*P) *T, parse func(string) (T, error), format func(T) string) field[P] {
	return field[P]{
		name: name,
		set: func(to *P, value string) (err error) {
			*at(to), err = parse(value)
			return err
		},
		get: func(from *P) string { return unlessZero(*at(from), format) },
	}
}

func unlessZero[T comparable](v T, format func(T) string) string {
	if v == *new(T) {
		return ""
	}
	return format(v)
}

func namesOf[P any](fields []field[P]) (names []string) {
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}

// arguments returns the possible arguments of an answer, in the order in which
// [Answer.String] writes them.
func arguments() []field[Answer] {
	return []field[Answer]{
		fieldOf("delay", func(a *Answer) *Delay { return &a.Delay }, parseDelay, Delay.String),
		fieldOf("error", func(a *Answer) *string { return &a.Error }, parseCode, enquote),
		fieldOf("retry-info", func(a *Answer) *time.Duration { return &a.RetryInfo }, parsePositive, textfmt.PolicyDuration),
		fieldOf("body", func(a *Answer) *Body { return &a.Body }, parseBody, Body.String),
		fieldOf("stream", func(a *Answer) *string { return &a.Stream.Form }, parseStreamForm, asIs),
		fieldOf("events", func(a *Answer) *int { return &a.Stream.Events }, countUpTo(maxEvents), strconv.Itoa),
		fieldOf("every", func(a *Answer) *time.Duration { return &a.Stream.Every }, parsePositive, textfmt.PolicyDuration),
		fieldOf("error-at", func(a *Answer) *string { return &a.Stream.Error }, parseErrorAt, asIs),
		flagArgument("no-done", func(a *Answer) *bool { return &a.Stream.NoDone }),
		flagArgument("chunked", func(a *Answer) *bool { return &a.Chunked }),
		fieldOf("dribble", func(a *Answer) *Pace { return &a.Dribble }, parsePace, Pace.String),
		fieldOf("padding", func(a *Answer) *int64 { return &a.Padding }, parsePadding, textfmt.FormatSize),
		endArgument(Cut), endArgument(Stall), endArgument(Reset),
		fieldOf("read", func(a *Answer) *Pace { return &a.Read }, parsePace, Pace.String),
		flagArgument("early", func(a *Answer) *bool { return &a.Early }),
	}
}

func asIs(text string) string { return text }

func flagArgument(name string, at func(*Answer) *bool) field[Answer] {
	f := fieldOf(name, at, func(string) (bool, error) { return true, nil }, strconv.FormatBool)
	f.flag = true
	return f
}

// endArgument returns the argument of this kind (cut, stall or reset), which ends the body
// early.
func endArgument(kind string) field[Answer] {
	return field[Answer]{
		name: kind,
		set: func(a *Answer, v string) (err error) {
			if a.End.Kind != "" {
				return fmt.Errorf("can't be combined with %s=%s; a body can end only once", a.End.Kind, a.End.At)
			}
			a.End.Kind = kind
			a.End.At, err = parsePosition(v)
			return err
		},
		get: func(a *Answer) string {
			if a.End.Kind != kind {
				return ""
			}
			return a.End.At.String()
		},
	}
}

func parseCode(v string) (string, error) {
	code, err := unquote(v)
	if err == nil && code == "" {
		err = fmt.Errorf("%s: the code is empty", v)
	}
	return code, err
}

// streamForms lists the forms of a stream.
var streamForms = []string{"auto", OpenAI, Responses, Anthropic, "plain"}

func parseStreamForm(v string) (string, error) {
	if !slices.Contains(streamForms, v) {
		return "", fmt.Errorf("%q is no form of a stream; want %s", v, strings.Join(streamForms, ", "))
	}
	return v, nil
}

func parseErrorAt(v string) (string, error) {
	if v == "first" || v == "start" {
		return v, nil
	}
	n, err := parseCount(v, maxEvents)
	if err != nil {
		return "", fmt.Errorf("%q is no place for an error; want first, start (after the event that begins the stream) or a number of events before it", v)
	}
	return strconv.Itoa(n), nil
}
