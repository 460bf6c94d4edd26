package cli

import (
	"bufio"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/initial"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
)

const initLong = `Writes a configuration file with comments, to start from, and says which two
commands to run next. The cases are

%s
Without one it asks, on a terminal; otherwise it lists them and ends with 125.

Each file loads as it is with no variable set, except that of nip90, which wants a
key first. Further settings have a # before them. The file can be read by its owner alone,
and one that is there is not written over without --force.

Exit codes: 0 done, 125 nothing was written.`

const initExample = `  tideover init workflow
  tideover init gateway --out ~/.config/tideover/config.yaml
  tideover init all --stdout | less`

type initOptions struct {
	io     Streams
	out    string
	stdout bool
	force  bool
}

func newInit(io Streams) *cobra.Command {
	o := &initOptions{io: io}
	cmd := &cobra.Command{
		Use:                   "init [flags] [case]",
		Short:                 "Write a configuration file to start from",
		Long:                  fmt.Sprintf(initLong, caseList("  ")),
		Example:               initExample,
		DisableFlagsInUseLine: true,
		Args:                  atMostOne("case"),
		ValidArgsFunction:     completeCases,
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.stdout && (o.force || cmd.Flags().Changed("out")) {
				return errors.New("--stdout: it writes no file, so leave out --out and --force")
			}
			return o.run(args)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&o.out, "out", "o", initial.Name, "the `file` to write")
	f.BoolVar(&o.stdout, "stdout", false, "print it instead")
	f.BoolVar(&o.force, "force", false, "write over a file that is there")
	_ = cmd.MarkFlagFilename("out", "yaml", "yml")
	return cmd
}

func completeCases(_ *cobra.Command, args []string, _ string) (list []cobra.Completion, _ cobra.ShellCompDirective) {
	if len(args) == 0 {
		for _, c := range initial.Cases() {
			list = append(list, cobra.CompletionWithDesc(c.Name, c.About))
		}
	}
	return list, cobra.ShellCompDirectiveNoFileComp
}

// caseList has a line for each case, with something before it.
func caseList(before string) string {
	var b strings.Builder
	for _, c := range initial.Cases() {
		fmt.Fprintf(&b, "%s%-9s %s\n", before, c.Name, c.About)
	}
	return b.String()
}

func (o *initOptions) run(args []string) error {
	c, err := o.choose(args)
	if err != nil {
		return err
	}
	text, err := c.File()
	if err != nil {
		return &codedError{err, codeOwn}
	}
	if o.stdout {
		_, err = o.io.Out.Write(text)
		return err
	}
	if err := writeConfig(o.out, text, o.force); err != nil {
		return &codedError{fmt.Errorf("init: %w", err), codeOwn}
	}
	return o.report(c)
}

// choose returns the case of the arguments, or asks for one.
func (o *initOptions) choose(args []string) (initial.Case, error) {
	if len(args) == 0 {
		if process.IsTerminal(o.io.In) && process.IsTerminal(o.io.Err) {
			return o.ask()
		}
		return initial.Case{}, &codedError{fmt.Errorf("init: for which case?\n%sSuch as: tideover init workflow", caseList("  ")), codeOwn}
	}
	c, ok := initial.Find(args[0])
	if !ok {
		return c, &codedError{fmt.Errorf("init: there is no case %q, but\n%s", args[0], strings.TrimRight(caseList("  "), "\n")), codeOwn}
	}
	return c, nil
}

// ask has somebody at a terminal choose, by number or by name.
func (o *initOptions) ask() (initial.Case, error) {
	all := initial.Cases()
	fmt.Fprintln(o.io.Err, "A configuration for")
	for i, c := range all {
		fmt.Fprintf(o.io.Err, "  %d  %-9s %s\n", i+1, c.Name, c.About)
	}
	for answers := bufio.NewScanner(o.io.In); ; {
		fmt.Fprintf(o.io.Err, "Which one, 1 to %d? ", len(all))
		if !answers.Scan() {
			fmt.Fprintln(o.io.Err)
			return initial.Case{}, &codedError{errors.New("init: nothing was chosen, and nothing written"), codeOwn}
		}
		if c, ok := chosen(all, answers.Text()); ok {
			return c, nil
		}
	}
}

// chosen returns what an answer means.
func chosen(all []initial.Case, answer string) (initial.Case, bool) {
	answer = strings.ToLower(strings.TrimSpace(answer))
	if n, err := strconv.Atoi(answer); err == nil && n >= 1 && n <= len(all) {
		return all[n-1], true
	}
	return initial.Find(answer)
}

// report says what was written, and what to run.
func (o *initOptions) report(c initial.Case) error {
	var text strings.Builder
	fmt.Fprintf(&text, "tideover: wrote %s: %s. Look at it, then run\n", visible(o.out), c.About)
	serving := ""
	for _, command := range c.Next(o.out) {
		words := make([]string, len(command))
		for i, w := range command {
			words[i] = shellWord(w)
		}
		fmt.Fprintf(&text, "  %s%s\n", visible(strings.Join(words, " ")), serving)
		if slices.Contains(command, "serve") {
			serving = "   # in another window"
		}
	}
	_, err := fmt.Fprint(o.io.Out, text.String())
	return err
}
