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

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

// understand makes all verbs say what may have been meant when a command line is
// wrong, and refuse values that are empty.
func understand(root *cobra.Command) {
	root.SetFlagErrorFunc(flagMistake)
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return emptyValue(cmd) }
	root.SetHelpCommand(newHelp())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range append(root.Commands(), root) {
		if !cmd.HasSubCommands() || cmd.Name() == "providers" { // which takes names, too
			continue
		}
		cmd.Args = unknownVerb
		if !cmd.Runnable() {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// newHelp is the verb that explains the others.
func newHelp() *cobra.Command {
	return &cobra.Command{
		Use:   "help [command]",
		Short: "Help about any command",
		Long:  "Explains a command, or a topic: tideover help policy.",
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
				return unknownVerb(about, rest)
			}
			about.InitDefaultHelpFlag()
			about.InitDefaultVersionFlag()
			return about.Help()
		},
	}
}

// unknownVerb says what is wrong with what follows a verb that has others below it.
func unknownVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	verbs := verbsOf(cmd)
	text := fmt.Sprintf("unknown command %q", cmd.CommandPath()+" "+args[0])
	near := strictyaml.Nearest(args[0], verbs)
	switch {
	case near != "":
		return fmt.Errorf("%s; did you mean %q?", text, cmd.CommandPath()+" "+near)
	case len(verbs) == 0:
		return fmt.Errorf("%s: %q takes no other", text, cmd.CommandPath())
	case len(verbs) <= 12: // a list that can be read
		return fmt.Errorf("%s; there are %s", text, strings.Join(verbs, ", "))
	}
	return errors.New(text)
}

// verbsOf returns the names of the commands below one.
func verbsOf(cmd *cobra.Command) (list []string) {
	for _, sub := range manCommands(cmd) {
		list = append(list, sub.Name())
	}
	return list
}

// otherNames are what flags are called elsewhere.
var otherNames = map[string][]string{
	"timeout":     {"attempt-timeout", "total-timeout"},
	"max-time":    {"total-timeout"},
	"deadline":    {"total-timeout"},
	"retries":     {"attempts"},
	"retry":       {"attempts"},
	"max-retries": {"attempts"},
	"tries":       {"attempts"},
	"count":       {"attempts"},
	"times":       {"attempts"},
	"delay":       {"policy"},
	"backoff":     {"policy"},
	"interval":    {"policy"},
	"sleep":       {"policy"},
	"json":        {"events"},
	"output":      {"json", "events"},
	"format":      {"json"},
	"port":        {"listen"},
	"addr":        {"listen", "server"},
	"address":     {"listen", "server"},
	"bind":        {"listen"},
	"host":        {"server"},
	"url":         {"server"},
	"file":        {"config"},
	"follow":      {"watch"},
	"silent":      {"quiet"},
	"id":          {"name"},
}

// flagMistake says what is wrong with a flag, without the words of a library.
func flagMistake(cmd *cobra.Command, err error) error {
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return unknownFlag(cmd, e)
	}
	if e, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("--%s: a value is missing", e.GetFlag().Name)
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
	return fmt.Errorf("%s: %q is not %s", name, e.GetValue(), kindOf(e.GetFlag()))
}

// kindOf says in a word what a flag of a library's type wants.
func kindOf(f *pflag.Flag) string {
	switch kind := f.Value.Type(); {
	case kind == "bool":
		return "true or false"
	case strings.HasPrefix(kind, "uint"):
		return "a whole number from 0 on"
	case strings.HasPrefix(kind, "int"):
		return "a whole number"
	default:
		return "a number"
	}
}

// unknownFlag says which one may be meant.
func unknownFlag(cmd *cobra.Command, e *pflag.NotExistError) error {
	name := e.GetSpecifiedName()
	if short := e.GetSpecifiedShortnames(); short != "" {
		return fmt.Errorf("unknown flag -%s", name)
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	meant := slices.DeleteFunc(slices.Clone(otherNames[name]), func(other string) bool { return !slices.Contains(known, other) })
	if len(meant) == 0 {
		if near := cmp.Or(strictyaml.Nearest(name, known), beginning(name, known)); near != "" {
			meant = []string{near}
		}
	}
	if len(meant) == 0 {
		return fmt.Errorf("unknown flag --%s", name)
	}
	return fmt.Errorf("unknown flag --%s; did you mean --%s?", name, strings.Join(meant, " or --"))
}

// beginning returns the only known word that begins with the word.
func beginning(word string, known []string) (found string) {
	for _, k := range known {
		if strings.HasPrefix(k, word) {
			if found != "" {
				return ""
			}
			found = k
		}
	}
	return found
}

// emptyValue says which flag was given nothing, as by a variable of a shell that is
// not set. To go on as if it were not there would take a timeout away, say.
func emptyValue(cmd *cobra.Command) (err error) {
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
	return fmt.Errorf("%s: the value is empty; is a variable not set?", flag)
}
