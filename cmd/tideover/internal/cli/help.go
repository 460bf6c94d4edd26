package cli

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tideover/tideover/cmd/tideover/internal/chart"
)

// groupKey is the key of the annotation that holds a flag's heading in the help text, and of the
// annotation of a command that holds the order of the headings.
const groupKey = "tideover-group"

// groupFlags puts flags under a heading of the help text.
func groupFlags(flags *pflag.FlagSet, heading string, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, groupKey, []string{heading})
	}
}

// setGroupedHelp makes the help list the flags under these headings, in this order; flags without a
// heading come last.
func setGroupedHelp(cmd *cobra.Command, headings ...string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[groupKey] = strings.Join(headings, "\n")
}

// printHelp prints the help of a command: first its task, how it is called, and examples; then the
// details, its exit codes, its subcommands and its flags.
func printHelp(cmd *cobra.Command, _ []string) {
	out := cmd.OutOrStdout()
	task, details, _ := strings.Cut(strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short)), "\n\n")
	if !cmd.Runnable() && !cmd.HasSubCommands() { // a help topic
		fmt.Fprintf(out, "%s\n\n%s\n", task, details)
		return
	}
	fmt.Fprintf(out, "%s\n\nUsage:\n", task)
	if cmd.Runnable() {
		fmt.Fprintf(out, "  %s\n", cmd.UseLine())
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "  %s [command]\n", cmd.CommandPath())
	}
	if cmd.Example != "" {
		fmt.Fprintf(out, "\nExamples:\n%s\n", strings.Trim(cmd.Example, "\n"))
	}
	if details != "" {
		fmt.Fprintf(out, "\n%s\n", strings.TrimRight(details, "\n"))
	}
	printExitCodes(out, cmd)
	printSubcommands(out, cmd)
	printFlags(out, cmd)
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "\nUse \"%s [command] --help\" for more information about a command.\n", cmd.CommandPath())
	}
}

// printExitCodes prints the exit codes of a command.
func printExitCodes(out io.Writer, cmd *cobra.Command) {
	if !listsExits(cmd) {
		return
	}
	fmt.Fprintln(out, "\nExit codes:")
	for _, line := range exitLines(cmd) {
		fmt.Fprint(out, hanging(fmt.Sprintf("  %-6s", line.label), line.means, 84))
	}
}

// printSubcommands prints the subcommands of a command under their headings, and its help topics.
func printSubcommands(out io.Writer, cmd *cobra.Command) {
	list := func(title string, subs []*cobra.Command, name func(*cobra.Command) string) {
		if len(subs) == 0 {
			return
		}
		fmt.Fprintf(out, "\n%s\n", title)
		for _, sub := range subs {
			fmt.Fprintf(out, "  %-*s %s\n", sub.NamePadding(), name(sub), sub.Short)
		}
	}
	of := func(group string) (subs []*cobra.Command) {
		for _, sub := range cmd.Commands() {
			if (sub.IsAvailableCommand() || sub.Name() == "help") && sub.GroupID == group {
				subs = append(subs, sub)
			}
		}
		return subs
	}
	for _, g := range cmd.Groups() {
		list(g.Title, of(g.ID), (*cobra.Command).Name)
	}
	list("Commands:", of(""), (*cobra.Command).Name)
	var topics []*cobra.Command
	for _, sub := range cmd.Commands() {
		if sub.IsAdditionalHelpTopicCommand() && !sub.Hidden {
			topics = append(topics, sub)
		}
	}
	list("Help topics:", topics, func(sub *cobra.Command) string { return "help " + sub.Name() })
}

// printFlags prints the flags of a command, under the headings of setGroupedHelp if it has them.
func printFlags(out io.Writer, cmd *cobra.Command) {
	var headings []string
	if text := cmd.Annotations[groupKey]; text != "" {
		headings = strings.Split(text, "\n")
	}
	other := "Flags"
	if len(headings) > 0 {
		other = "Other flags"
	}
	for _, heading := range append(headings, "") {
		set := pflag.NewFlagSet(heading, pflag.ContinueOnError)
		set.SortFlags = cmd.Flags().SortFlags
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if group := append(f.Annotations[groupKey], "")[0]; group == heading {
				set.AddFlag(f)
			}
		})
		if set.HasAvailableFlags() {
			fmt.Fprintf(out, "\n%s:\n%s", cmp.Or(heading, other), set.FlagUsages())
		}
	}
}

// hideZeroDefaults removes defaults that are zero from the help of all flags of a command and its
// subcommands: pflag hides them only for its own types, and a usage that states what the program
// does without the flag would be followed by "(default 0s)".
func hideZeroDefaults(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains([]string{"0s", "0%"}, f.DefValue) {
			f.DefValue = "0"
		}
	})
	for _, sub := range cmd.Commands() {
		hideZeroDefaults(sub)
	}
}

// hangingList lists names with their descriptions for a help text. format formats a name with its
// indent and padding.
func hangingList(all iter.Seq2[string, string], format string) string {
	var b strings.Builder
	for name, about := range all {
		b.WriteString(hanging(fmt.Sprintf(format, name), about, 80))
	}
	return b.String()
}

// hanging returns a name followed by wrapped text with a hanging indent.
func hanging(name, text string, width int) string {
	indent := strings.Repeat(" ", len(name))
	return name + strings.TrimPrefix(chart.Wrap(text, width, indent+" "), indent)
}
