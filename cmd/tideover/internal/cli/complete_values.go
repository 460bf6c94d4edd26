package cli

import (
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// single returns a completion that completes only the first argument.
func single(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, prefix)
	}
}

// completeNames completes names that are not in the arguments yet, with their descriptions.
func completeNames(all iter.Seq2[string, string], directive cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) (list []cobra.Completion, _ cobra.ShellCompDirective) {
		for name, about := range all {
			if !slices.Contains(args, name) {
				list = append(list, cobra.CompletionWithDesc(name, about))
			}
		}
		return list, directive
	}
}

// completeNoFiles makes flags complete nothing instead of files.
func completeNoFiles(cmd *cobra.Command, flags ...string) {
	for _, name := range flags {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
	}
}

// completeFixed makes a flag complete these values.
func completeFixed(cmd *cobra.Command, flag string, values ...cobra.Completion) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeWords completes the last word of a comma-separated list.
func completeWords(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, prefix string) (out []cobra.Completion, _ cobra.ShellCompDirective) {
		before := prefix[:strings.LastIndex(prefix, ",")+1]
		for _, w := range words {
			out = append(out, before+w)
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}
