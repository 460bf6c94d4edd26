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

// maxTimes is how often a step may come.
const maxTimes = 1_000_000

// stepForm is a name or status, arguments in parentheses, and a number of times.
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
	if s.Status, s.Act, err = parseHead(m[1], word); err != nil {
		return s, err
	}
	list, err := words(m[2])
	if err != nil {
		return s, err
	}
	seen := map[string]bool{}
	for _, w := range list {
		name, value, _ := strings.Cut(w, "=")
		if name = strings.ToLower(name); seen[name] {
			return s, fmt.Errorf("%q: %q is given already", word, name)
		}
		seen[name] = true
		if err := s.set(name, value, strings.Contains(w, "=")); err != nil {
			return s, fmt.Errorf("%q: %w", word, err)
		}
	}
	return s, nil
}

// parseAnswer reads an answer that comes once.
func parseAnswer(word string) (Answer, error) {
	s, err := parseStep(word)
	if err == nil && s.Times != 1 {
		err = fmt.Errorf("%q: only the steps of a script come several times", word)
	}
	return s.Answer, err
}

// parseHead reads a status or the name of an act.
func parseHead(name, word string) (status int, act string, err error) {
	if slices.Contains(acts, name) {
		return 0, name, nil
	}
	status, err = strconv.Atoi(name)
	if err != nil || status < 200 || status > 599 {
		return 0, "", badAnswer(word)
	}
	return status, "", nil
}

func badAnswer(word string) error {
	return fmt.Errorf("%q is no answer; want a status from 200 to 599, such as 503 or 429(retry-after=2), or one of %s", word, strings.Join(acts, ", "))
}

// set sets one argument.
func (a *Answer) set(name, value string, given bool) error {
	for _, arg := range arguments() {
		switch {
		case arg.name != name:
			continue
		case arg.flag && given:
			return fmt.Errorf("%q has no value", name)
		case !arg.flag && !given:
			return fmt.Errorf("%q has no value; want %s=", name, name)
		}
		if err := arg.set(a, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
	if !isHeader(name) {
		return fmt.Errorf("%q is no argument of an answer; want one of %s, or a header: %s", name, strings.Join(argumentNames(), ", "), headerNames())
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

// String returns the answer as a spec has it.
func (a Answer) String() string {
	head := someCount(a.Status) + a.Act // both are no answer, and refused as such
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

// String returns the step as a spec has it.
func (s Step) String() string {
	if s.Times <= 1 {
		return s.Answer.String()
	}
	return s.Answer.String() + "x" + strconv.Itoa(s.Times)
}

// problems returns what is wrong with an answer, as far as no single argument is
// to blame.
func (a *Answer) problems() (list []error) {
	bad := func(when bool, text string) {
		if when {
			list = append(list, errors.New(text))
		}
	}
	only := a.String() != a.Act && (Answer{Act: a.Act, Delay: a.Delay}).String() != a.String()
	bad(a.Act != "" && only, fmt.Sprintf("%s takes no argument but delay", a.Act))
	bad(a.Act == Hang && a.Delay != Delay{}, "hang takes no delay: it never ends")
	if a.Act != "" {
		return list
	}
	streamless := a.Stream
	streamless.Form = ""
	bad(a.Stream.Form == "" && streamless != Stream{}, "events, every, error-at and no-done are of a stream; want stream=")
	bad(a.Stream.Form != "" && a.Body != Body{}, "there is a body and a stream; want one of them")
	bad(a.RetryInfo != 0 && (a.Stream.Form != "" || a.Body != Body{}), "retry-info is a body, so that there is no other")
	bad(a.Stream.Form != "" && a.Chunked, "a stream has no length; leave out chunked")
	bad(a.Stream.Form == "plain" && a.Stream.NoDone, "a plain stream has no words for its end; leave out no-done")
	bad(a.Stream.Form == "" && a.End.Kind != "" && a.End.At.Unit == "event", "event: is a place in a stream; want stream=")
	bad(a.Error != "" && a.Status < 400 && a.Stream.Error == "", "error is the code of a failure: of a status from 400 on, or of a stream with error-at")
	bad(a.RetryInfo != 0 && a.Status < 400, "retry-info is of a status from 400 on")
	bodiless := a.Status == 204 || a.Status == 304
	bad(bodiless && (a.Body != Body{} || a.Stream.Form != "" || a.RetryInfo != 0 || a.Chunked || a.Dribble != Pace{} || a.End.Kind != ""), "such an answer has no body")
	return list
}

// usesDue reports whether the answer says when there is room again.
func (a *Answer) usesDue() bool {
	return slices.ContainsFunc(a.Headers, func(h Header) bool { return isWait(h.Name) && usesDue(h.Value) })
}

func enquoteSome(text string) string {
	if text == "" {
		return ""
	}
	return enquote(text)
}

func someDuration(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return textfmt.PolicyDuration(d)
}

func someCount(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func someSize(n int64) string {
	if n == 0 {
		return ""
	}
	return textfmt.FormatSize(n)
}
