package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// one wants one argument, and says what it is for.
func one(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch len(args) {
		case 0:
			return fmt.Errorf("%s: which %s?", cmd.Name(), what)
		case 1:
			return nil
		}
		return fmt.Errorf("%s: one %s at a time, and %q is another", cmd.Name(), what, args[1])
	}
}

// some wants one argument or more.
func some(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s: which %s?", cmd.Name(), what)
		}
		return nil
	}
}

// none wants no argument.
func none(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s: takes no argument, and %q is one", cmd.Name(), args[0])
	}
	return nil
}
