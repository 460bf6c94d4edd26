package cli

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/cmd/tideover/internal/starter"
	"github.com/tideover/tideover/internal/atomicfile"
	"github.com/tideover/tideover/internal/textfmt"
)

const initLong = `Writes a configuration file with comments as a starting point, and prints the two
commands to run next. The cases are:

%s
Without a case, you are asked on a terminal; otherwise the cases are listed and the
exit code is 125.

Each file is valid without any environment variable, except that of nip90, which
needs a key. Optional settings are commented out. Only the owner can read the file.
An existing file is replaced only with --force.`

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
		Use:               "init [flags] [case]",
		Short:             "Write a configuration file to start from",
		Long:              fmt.Sprintf(initLong, caseList()),
		Example:           initExample,
		Args:              atMostOne("case"),
		ValidArgsFunction: single(completeNames(caseNames, cobra.ShellCompDirectiveNoFileComp)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.stdout && (o.force || cmd.Flags().Changed("out")) {
				return errors.New("--stdout writes no file: leave out --out and --force")
			}
			return o.run(args)
		},
	}
	f := orderedFlags(cmd)
	f.StringVarP(&o.out, "out", "o", starter.Name, "the `file` to write")
	f.BoolVar(&o.stdout, "stdout", false, "print the configuration instead of writing a file")
	f.BoolVar(&o.force, "force", false, "replace an existing file")
	_ = cmd.MarkFlagFilename("out", "yaml", "yml")
	return cmd
}

// caseNames yields the names of the cases with their descriptions.
func caseNames(yield func(name, about string) bool) {
	for _, c := range starter.Cases() {
		if !yield(c.Name, c.About) {
			return
		}
	}
}

// caseList returns an indented line for each case.
func caseList() string {
	var b strings.Builder
	for name, about := range caseNames {
		fmt.Fprintf(&b, "  %-9s %s\n", name, about)
	}
	return b.String()
}

func (o *initOptions) run(args []string) error {
	c, err := o.choose(args)
	if err != nil {
		return &codedError{fmt.Errorf("init: %w", err), CodeOwn}
	}
	text, err := c.File()
	if err != nil {
		return &codedError{err, CodeOwn}
	}
	if o.stdout {
		_, err = o.io.Out.Write(text)
		return err
	}
	if err := writeConfig(o.out, text, o.force); err != nil {
		return &codedError{fmt.Errorf("init: %w", err), CodeOwn}
	}
	return o.report(c)
}

// choose returns the case that the arguments name. Without arguments it asks on a terminal.
func (o *initOptions) choose(args []string) (c starter.Case, err error) {
	if len(args) == 0 {
		if process.IsTerminal(o.io.In) && process.IsTerminal(o.io.Err) {
			return o.promptForCase()
		}
		return c, fmt.Errorf("no case given: choose one of\n%sExample: tideover init workflow", caseList())
	}
	c, ok := starter.Find(args[0])
	if !ok {
		err = fmt.Errorf("unknown case %q: choose one of\n%s", args[0], strings.TrimRight(caseList(), "\n"))
	}
	return c, err
}

// promptForCase lets the user choose a case on the terminal, by number or by name.
func (o *initOptions) promptForCase() (starter.Case, error) {
	all := starter.Cases()
	fmt.Fprintln(o.io.Err, "Which configuration do you want?")
	for i, c := range all {
		fmt.Fprintf(o.io.Err, "  %d  %-9s %s\n", i+1, c.Name, c.About)
	}
	for answers := bufio.NewScanner(o.io.In); ; {
		fmt.Fprintf(o.io.Err, "Number (1 to %d) or name: ", len(all))
		if !answers.Scan() {
			fmt.Fprintln(o.io.Err)
			return starter.Case{}, errors.New("no case was chosen: nothing was written")
		}
		if c, ok := parseChoice(all, answers.Text()); ok {
			return c, nil
		}
	}
}

// parseChoice returns the case that an answer names, by number or by name.
func parseChoice(all []starter.Case, answer string) (starter.Case, bool) {
	answer = strings.ToLower(strings.TrimSpace(answer))
	if n, err := strconv.Atoi(answer); err == nil && n >= 1 && n <= len(all) {
		return all[n-1], true
	}
	return starter.Find(answer)
}

// report prints the name of the file and the commands to run next.
func (o *initOptions) report(c starter.Case) error {
	var text strings.Builder
	fmt.Fprintf(&text, "tideover: wrote %s: %s. Edit it as needed, then run\n", visible(o.out), c.About)
	serving := ""
	for _, command := range c.Next(o.out) {
		fmt.Fprintf(&text, "  %s%s\n", visible(textfmt.ShellWords(command)), serving)
		if slices.Contains(command, "serve") {
			serving = "   # in another terminal"
		}
	}
	_, err := fmt.Fprint(o.io.Out, text.String())
	return err
}

// writeConfig writes a file that only its owner can read. If that fails, it leaves no partial file.
// It replaces an existing file only if force is true.
func writeConfig(path string, text []byte, force bool) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file: use --stdout to print the configuration", path)
	case err == nil && !force:
		return fmt.Errorf("%s exists already: use --force to replace it, or --out for another name", path)
	case err == nil:
		return replaceFile(path, text)
	}
	return writeNewFile(path, text)
}

// writeNewFile writes a file that only its owner can read. It fails if the file exists: another
// process may have created it meanwhile, or it is a dangling link.
func writeNewFile(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		_ = os.Remove(path)
	}
	return err
}

// replaceFile replaces an existing file atomically. A symbolic link stays, and its target is
// replaced.
func replaceFile(path string, text []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	return atomicfile.Write(path, text)
}
