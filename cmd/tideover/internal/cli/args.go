package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// exactlyOne accepts exactly one argument; what names it in error messages.
func exactlyOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return fmt.Errorf("%s: no %s given: name one", cmd.Name(), what)
		case 1:
			return nil
		}
		return fmt.Errorf("%s: too many arguments: want one %s, and %q is a second", cmd.Name(), what, args[1])
	}
}

// atLeastOne accepts one or more arguments; what names them in error messages.
func atLeastOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s: no %s given: name one", cmd.Name(), what)
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

// atMostOne accepts one argument or none; what names it in error messages.
func atMostOne(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return exactlyOne(what)(cmd, args)
	}
}
