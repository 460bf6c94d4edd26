package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tideover/tideover/internal/textfmt"
)

// improveUsageErrors makes all commands suggest a correction if a command line is wrong, and reject
// flags with an empty value. A command that can't run without a subcommand prints its help.
func improveUsageErrors(root *cobra.Command) {
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError{describeFlagError(cmd, err)} })
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return rejectEmptyFlags(cmd) }
	root.SetHelpFunc(printHelp)
	root.SetHelpCommand(newHelp())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	hideZeroDefaults(root)
	for _, cmd := range append(root.Commands(), root) {
		if !cmd.HasSubCommands() || cmd.Name() == "providers" { // its argument can also be the name of a provider
			continue
		}
		cmd.Args = rejectUnknownCommand
		if !cmd.Runnable() {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// newHelp returns a help command that replaces that of cobra. It rejects unknown commands.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		Long:  "Shows the help of a command or of a topic, such as tideover help policy.",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) (list []cobra.Completion, _ cobra.ShellCompDirective) {
			about, _, err := cmd.Root().Find(args)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			for _, sub := range manCommands(about) {
				if strings.HasPrefix(sub.Name(), prefix) {
					list = append(list, cobra.CompletionWithDesc(sub.Name(), sub.Short))
				}
			}
			return list, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return rejectUnknownCommand(about, rest)
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
	}
}

// verbSynonyms maps words that people try as commands to the command that does it.
var verbSynonyms = map[string]string{
	"start": "run", "ls": "runs", "list": "runs", "ps": "runs", "replay": "retry --input", "rerun": "retry --from",
	"resume": "retry", "stop": "cancel", "discard": "cancel", "kill": "cancel", "retry-now": "wake", "logs": "events", "tail": "events",
}

// rejectUnknownCommand returns an error for an argument that is not a subcommand, with a
// suggestion.
func rejectUnknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	verbs := subcommandNames(cmd)
	text := fmt.Sprintf("unknown command %q", cmd.CommandPath()+" "+args[0])
	near := textfmt.Nearest(args[0], verbs)
	if meant := verbSynonyms[args[0]]; meant != "" && !cmd.HasParent() {
		near = meant
	}
	switch {
	case near != "":
		return fmt.Errorf("%s; did you mean %q?", text, cmd.CommandPath()+" "+near)
	case len(verbs) == 0:
		return fmt.Errorf("%s: %q has no subcommands", text, cmd.CommandPath())
	case len(verbs) <= 12:
		return fmt.Errorf("%s: want one of %s", text, strings.Join(verbs, ", "))
	}
	return errors.New(text)
}

// subcommandNames returns the names of the subcommands.
func subcommandNames(cmd *cobra.Command) (list []string) {
	for _, sub := range manCommands(cmd) {
		list = append(list, sub.Name())
	}
	return list
}

// flagSynonyms maps our flags to the names that other tools use for them.
var flagSynonyms = map[string][]string{
	"attempt-timeout": {"timeout"},
	"total-timeout":   {"timeout", "max-time", "deadline"},
	"attempts":        {"retries", "retry", "max-retries", "tries", "count", "times"},
	"policy":          {"delay", "backoff", "interval", "sleep"},
	"json":            {"output", "format"},
	"events":          {"output"},
	"listen":          {"port", "addr", "address", "bind"},
	"server":          {"addr", "address", "host", "url"},
	"config":          {"file"},
	"watch":           {"follow"},
	"quiet":           {"silent"},
	"name":            {"id"},
}

// describeFlagError replaces an error of the flag library by one that says what to write instead.
func describeFlagError(cmd *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(cmd, e)
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("--%s needs a value", e.GetFlag().Name)
	}
	e, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	name := "--" + e.GetFlag().Name
	number, ok := errors.AsType[*strconv.NumError](e.Unwrap())
	switch {
	case e.GetValue() == "":
		return errEmpty(name)
	case !ok:
		return fmt.Errorf("%s: %w", name, e.Unwrap())
	case errors.Is(number, strconv.ErrRange):
		return fmt.Errorf("%s: %s is out of range", name, e.GetValue())
	}
	return fmt.Errorf("%s: %q is not %s", name, e.GetValue(), describeFlagType(e.GetFlag()))
}

// describeFlagType describes the values that a number or bool flag accepts, for error messages.
func describeFlagType(f *pflag.Flag) string {
	switch kind := f.Value.Type(); {
	case kind == "bool":
		return "true or false"
	case strings.HasPrefix(kind, "uint"):
		return "a whole number of 0 or more"
	case strings.HasPrefix(kind, "int"):
		return "a whole number"
	default:
		return "a number"
	}
}

// unknownFlag returns an error for a flag that does not exist, with a suggestion.
func unknownFlag(cmd *cobra.Command, e *pflag.NotExistError) error {
	name := e.GetSpecifiedName()
	if short := e.GetSpecifiedShortnames(); short != "" {
		return fmt.Errorf("unknown flag -%s", name)
	}
	var known, synonyms, longer []string // longer has the flags that begin with name
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		known = append(known, f.Name)
		if slices.Contains(flagSynonyms[f.Name], name) {
			synonyms = append(synonyms, f.Name)
		}
		if strings.HasPrefix(f.Name, name) {
			longer = append(longer, f.Name)
		}
	})
	meant := strings.Join(synonyms, " or --")
	if meant == "" {
		meant = textfmt.Nearest(name, known)
	}
	if meant == "" && len(longer) == 1 {
		meant = longer[0]
	}
	if meant == "" {
		return fmt.Errorf("unknown flag --%s", name)
	}
	return fmt.Errorf("unknown flag --%s; did you mean --%s?", name, meant)
}

// rejectEmptyFlags returns an error for a flag that is given with an empty value, which usually
// comes from an unset shell variable. If it were ignored, a timeout could be lost, for example.
func rejectEmptyFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		empty := f.Value.String() == ""
		if list, ok := f.Value.(pflag.SliceValue); ok {
			empty = len(list.GetSlice()) == 0 || slices.Contains(list.GetSlice(), "")
		}
		if empty {
			err = cmp.Or(err, errEmpty("--"+f.Name))
		}
	})
	return err
}

func errEmpty(flag string) error {
	return fmt.Errorf("%s: the value is empty: is a shell variable unset?", flag)
}
