package session

import (
	"fmt"
	"slices"
	"strings"
)

// values is how many values a flag takes.
type values int

// The possible numbers of values.
const (
	noValue values = iota
	oneValue
	optionalValue // the next argument, unless it is a flag
	manyValues    // all arguments up to the next flag
	refused       // a command with the flag can't be resumed
)

// flagTable maps the names of a program's flags to their number of values.
type flagTable map[string]values

// newFlagTable builds a table from space-separated lists of names, which include their dashes.
func newFlagTable(none, one, optional, many string) flagTable {
	t := flagTable{}
	for kind, names := range map[values]string{noValue: none, oneValue: one, optionalValue: optional, manyValues: many} {
		for name := range strings.FieldsSeq(names) {
			t[name] = kind
		}
	}
	return t
}

// refuse adds flags with which a command can't be resumed, such as those that change which session is
// meant.
func (t flagTable) refuse(names string) flagTable {
	for name := range strings.FieldsSeq(names) {
		t[name] = refused
	}
	return t
}

// token is a flag with its values, or one argument that is not a flag.
type token struct {
	flag   string // as written, without the value; "" if the token is not a flag
	values []string
	args   []string // as written
}

// endOfFlags is the argument that ends the flags.
const endOfFlags = "--"

// parse splits arguments into tokens. If firstOnly is set, it stops before the first argument that
// is not a flag, and returns the rest.
//
// An unknown flag before all such arguments is kept if it has no separate value: if it is --name=value,
// or --name with a flag or nothing after it.
func (t flagTable) parse(args []string, firstOnly bool) (tokens []token, rest []string, err error) {
	for len(args) > 0 {
		arg := args[0]
		switch {
		case arg == endOfFlags:
			tokens = append(tokens, token{flag: endOfFlags, args: args[:1]})
			for _, a := range args[1:] {
				tokens = append(tokens, argument(a))
			}
			return tokens, nil, nil
		case arg == "-" || !strings.HasPrefix(arg, "-"):
			if firstOnly {
				return tokens, args, nil
			}
			tokens, args = append(tokens, argument(arg)), args[1:]
		case t.keepsUnknown(args) && len(arguments(tokens)) == 0:
			tokens, args = append(tokens, token{flag: arg, args: args[:1]}), args[1:]
		default:
			n, more, err := t.flag(args)
			if err != nil {
				return nil, nil, err
			}
			tokens, args = append(tokens, more...), args[n:]
		}
	}
	return tokens, nil, nil
}

// keepsUnknown reports whether the flag at the beginning of args is unknown, and has no separate value.
func (t flagTable) keepsUnknown(args []string) bool {
	name, _, attached := strings.Cut(args[0], "=")
	_, known := t[name]
	return !known && strings.HasPrefix(name, "--") && (attached || len(args) == 1 || strings.HasPrefix(args[1], "-"))
}

// argument returns the token of an argument that is not a flag.
func argument(arg string) token { return token{values: []string{arg}, args: []string{arg}} }

// flag parses the flag at the beginning of args and returns how many of them it uses. Several short
// flags may be joined.
func (t flagTable) flag(args []string) (n int, tokens []token, err error) {
	name, value, attached := strings.Cut(args[0], "=")
	kind, known := t[name]
	if !known && len(name) > 2 && name[1] != '-' { // such as -mgpt-5, or -pc
		if kind, known = t[name[:2]]; known && kind == noValue {
			return t.cluster(args[0])
		}
		name, value, attached = args[0][:2], args[0][2:], true
	}
	switch {
	case !known:
		return 0, nil, unknownFlag(name, args[1:], attached)
	case kind == refused:
		return 0, nil, fmt.Errorf("the flag %s is not supported", name)
	case attached && kind == noValue:
		return 0, nil, fmt.Errorf("the flag %s takes no value", name)
	}
	if attached {
		return 1, []token{{flag: name, values: []string{value}, args: args[:1]}}, nil
	}
	if kind == oneValue && len(args) < 2 {
		return 0, nil, fmt.Errorf("the flag %s has no value", name)
	}
	n = 1 + kind.count(args[1:])
	return n, []token{{flag: name, values: slices.Clone(args[1:n]), args: args[:n]}}, nil
}

// unknownFlag returns the error for an unknown flag. rest are the arguments after it.
func unknownFlag(name string, rest []string, attached bool) error {
	if attached || len(rest) == 0 || strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("the flag %s is unknown", name)
	}
	return fmt.Errorf("the flag %s is unknown, so %q may be its value: write %s=%s before the prompt if it is, else put %[1]s before another flag", name, rest[0], name, rest[0])
}

// count returns how many of the arguments after a flag are its values.
func (v values) count(args []string) (n int) {
	switch {
	case v == oneValue:
		return 1
	case v == optionalValue && len(args) > 0 && !strings.HasPrefix(args[0], "-"):
		return 1
	case v == manyValues:
		for n < len(args) && !strings.HasPrefix(args[n], "-") {
			n++
		}
	}
	return n
}

// cluster parses joined short flags without values, such as -pc.
func (t flagTable) cluster(arg string) (n int, tokens []token, err error) {
	for _, letter := range arg[1:] {
		name := "-" + string(letter)
		if kind, known := t[name]; !known || kind != noValue {
			return 0, nil, fmt.Errorf("the flag %s is unknown", name)
		}
		tokens = append(tokens, token{flag: name, args: []string{name}})
	}
	return 1, tokens, nil
}

// is reports whether the token is one of the flags.
func (t *token) is(names ...string) bool { return t.flag != "" && slices.Contains(names, t.flag) }

// value returns the first value, "" if there is none.
func (t *token) value() string {
	if len(t.values) == 0 {
		return ""
	}
	return t.values[0]
}

// find returns the last token that is one of the flags, nil if there is none.
func find(tokens []token, names ...string) *token {
	for i := range slices.Backward(tokens) {
		if tokens[i].is(names...) {
			return &tokens[i]
		}
	}
	return nil
}

// without returns the tokens that are none of the flags.
func without(tokens []token, names ...string) []token {
	return slices.DeleteFunc(slices.Clone(tokens), func(t token) bool { return t.is(names...) })
}

// arguments returns the positions of the tokens that are not flags.
func arguments(tokens []token) (list []int) {
	for i := range tokens {
		if tokens[i].flag == "" {
			list = append(list, i)
		}
	}
	return list
}

// join writes tokens as arguments.
func join(tokens []token) (args []string) {
	for _, t := range tokens {
		args = append(args, t.args...)
	}
	return args
}

// replaceArgument returns the tokens with the one at index at replaced by an argument.
func replaceArgument(tokens []token, at int, arg string) []token {
	tokens = slices.Clone(tokens)
	tokens[at] = argument(arg)
	return tokens
}

// addFlag returns the tokens with one more flag, args[0], and its values. It inserts them before "--".
func addFlag(tokens []token, args ...string) []token {
	at := slices.IndexFunc(tokens, func(t token) bool { return t.flag == endOfFlags })
	if at < 0 {
		at = len(tokens)
	}
	return slices.Insert(slices.Clone(tokens), at, token{flag: args[0], values: args[1:], args: args})
}
