package cli

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/internal/textfmt"
)

// exactlyOne returns a check that accepts exactly one argument. what is its name in error messages.
func exactlyOne(what string) cobra.PositionalArgs { return countArgs(what, 1, 1) }

// atLeastOne returns a check that accepts one or more arguments. what is their name in error
// messages.
func atLeastOne(what string) cobra.PositionalArgs { return countArgs(what, 1, math.MaxInt) }

// atMostOne returns a check that accepts one argument or none. what is its name in error messages.
func atMostOne(what string) cobra.PositionalArgs { return countArgs(what, 0, 1) }

// countArgs returns a check of the number of arguments, which must be between least and most. most
// must be 1 or math.MaxInt.
func countArgs(what string, least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least:
			return fmt.Errorf("%s: no %s given: name one", cmd.Name(), what)
		case len(args) > most:
			return fmt.Errorf("%s: too many arguments: want one %s, and %q is a second", cmd.Name(), what, args[1])
		}
		return nil
	}
}

// noArguments rejects any argument.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s: unexpected argument %q: the command takes none", cmd.Name(), args[0])
	}
	return nil
}

// unknownWord returns the error for a word that is not among the known ones, with a suggestion. what
// is the kind of thing, such as "state".
func unknownWord(what, word string, known []string) error {
	if near := textfmt.Nearest(word, known); near != "" {
		return fmt.Errorf("unknown %s %q; did you mean %q?", what, word, near)
	}
	return fmt.Errorf("unknown %s %q: want one of %s", what, word, strings.Join(known, ", "))
}
