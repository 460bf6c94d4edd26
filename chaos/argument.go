package chaos

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// maxEvents is how many events a stream may have: they are made in memory.
const maxEvents = 10_000

// argument is something that may stand in the parentheses of an answer. They are
// written in the order of the table.
type argument struct {
	name string
	flag bool // has no value
	set  func(a *Answer, value string) error
	get  func(a *Answer) string // "" means that it is not given
}

// streamForms are the forms of a stream.
var streamForms = []string{"auto", OpenAI, Responses, Anthropic, "plain"}

func arguments() []argument {
	return []argument{
		{name: "delay", set: func(a *Answer, v string) (err error) { a.Delay, err = parseDelay(v); return }, get: func(a *Answer) string { return a.Delay.String() }},
		{name: "error", set: setError, get: func(a *Answer) string { return enquoteSome(a.Error) }},
		{name: "retry-info", set: func(a *Answer, v string) (err error) { a.RetryInfo, err = parsePositive(v); return }, get: func(a *Answer) string { return someDuration(a.RetryInfo) }},
		{name: "body", set: func(a *Answer, v string) (err error) { a.Body, err = parseBody(v); return }, get: func(a *Answer) string { return a.Body.String() }},
		{name: "stream", set: setStream, get: func(a *Answer) string { return a.Stream.Form }},
		{name: "events", set: func(a *Answer, v string) (err error) { a.Stream.Events, err = parseCount(v, maxEvents); return }, get: func(a *Answer) string { return someCount(a.Stream.Events) }},
		{name: "every", set: func(a *Answer, v string) (err error) { a.Stream.Every, err = parsePositive(v); return }, get: func(a *Answer) string { return someDuration(a.Stream.Every) }},
		{name: "error-at", set: setErrorAt, get: func(a *Answer) string { return a.Stream.Error }},
		flagArgument("no-done", func(a *Answer) *bool { return &a.Stream.NoDone }),
		flagArgument("chunked", func(a *Answer) *bool { return &a.Chunked }),
		{name: "dribble", set: func(a *Answer, v string) (err error) { a.Dribble, err = parsePace(v); return }, get: func(a *Answer) string { return a.Dribble.String() }},
		{name: "padding", set: setPadding, get: func(a *Answer) string { return someSize(a.Padding) }},
		endArgument(Cut), endArgument(Stall), endArgument(Reset),
		{name: "read", set: func(a *Answer, v string) (err error) { a.Read, err = parsePace(v); return }, get: func(a *Answer) string { return a.Read.String() }},
		flagArgument("early", func(a *Answer) *bool { return &a.Early }),
	}
}

func flagArgument(name string, field func(*Answer) *bool) argument {
	return argument{
		name: name, flag: true,
		set: func(a *Answer, _ string) error { *field(a) = true; return nil },
		get: func(a *Answer) string { return map[bool]string{true: "true"}[*field(a)] },
	}
}

// endArgument is one of the ways in which a body ends before its end.
func endArgument(kind string) argument {
	return argument{
		name: kind,
		set: func(a *Answer, v string) (err error) {
			if a.End.Kind != "" {
				return fmt.Errorf("a body ends once, and there is %s=%s", a.End.Kind, a.End.At)
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

func setError(a *Answer, v string) (err error) {
	a.Error, err = unquote(v)
	if err == nil && a.Error == "" {
		err = fmt.Errorf("%s is no code", v)
	}
	return err
}

func setStream(a *Answer, v string) error {
	if !slices.Contains(streamForms, v) {
		return fmt.Errorf("%q is no form of a stream; want %s", v, strings.Join(streamForms, ", "))
	}
	a.Stream.Form = v
	return nil
}

func setErrorAt(a *Answer, v string) error {
	if v == "first" || v == "start" {
		a.Stream.Error = v
		return nil
	}
	n, err := parseCount(v, maxEvents)
	if err != nil {
		return fmt.Errorf("%q is no place for an error; want first, start (after the event that begins the stream) or a number of events before it", v)
	}
	a.Stream.Error = strconv.Itoa(n)
	return nil
}

func setPadding(a *Answer, v string) (err error) {
	a.Padding, err = parseSize(v)
	if err == nil && a.Padding == 0 {
		err = fmt.Errorf("%q is not above zero", v)
	}
	return err
}

func argumentNames() (names []string) {
	for _, arg := range arguments() {
		names = append(names, arg.name)
	}
	return names
}
