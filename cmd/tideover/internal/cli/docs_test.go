//go:build unix

package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/retry"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// Every command line on the pages, in blocks and in sentences, is accepted by tideover's own
// parser.
func TestTheCommandsOfThePagesAreRight(t *testing.T) {
	t.Parallel()
	all := 0
	for _, name := range clitest.Pages(t) {
		var list []string
		for _, line := range clitest.TypedIn(clitest.ReadPage(t, name)) {
			list = append(list, clitest.Invocations(line.Text)...)
		}
		for _, line := range commandLines(clitest.ReadPage(t, name)) {
			if !isCommandName(line) {
				list = append(list, clitest.Invocations(line)...)
			}
		}
		for _, command := range list {
			all++
			if err := checkCommandLine(command); err != nil {
				t.Errorf("%s: %s: %v", name, command, err)
			}
		}
	}
	if all < 150 {
		t.Errorf("the pages have %d command lines", all)
	}
	for _, wrong := range []string{
		"tideover watch --windoes 4 -- x", "tideover sessions halt todo", "tideover show", "tideover sessions pause todo --until soon",
		"tideover exec --policy 'http atempts=3' -- x", "tideover plan htpp", "tideover sim outage --policy 'a=fixed(x)'",
	} {
		if checkCommandLine(wrong) == nil {
			t.Errorf("%s: there should be something wrong with it", wrong)
		}
	}
}

// allCommands returns all commands, including those that cobra adds when it runs.
func allCommands() *cobra.Command {
	root := newRoot(Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	return root
}

// isCommandName reports whether a code span is only the name of a command.
func isCommandName(line string) bool {
	argv := strings.Fields(line)
	_, rest, err := allCommands().Find(argv[1:])
	return err == nil && len(rest) == 0
}

// placeholder matches words that the reader of a page replaces by a value, such as NAME.
var placeholder = regexp.MustCompile(`^(\[.*\]?|.*\]|[A-Z][A-Z0-9-]*…?|…|\.\.\.)$`)

// checkCommandLine returns an error if a command line is wrong, as far as that can be checked
// without running it.
func checkCommandLine(line string) error {
	argv, err := session.Split(line)
	if err != nil {
		return err
	}
	for i, word := range argv { // brackets mark a flag that may be left out
		argv[i] = strings.Trim(word, "[]")
	}
	cmd, rest, err := allCommands().Find(argv[1:])
	if err != nil {
		return err
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil || cmd.Flags().Changed("help") {
		return err
	}
	var policies []string
	if f := cmd.Flags().Lookup("policy"); f != nil && f.Changed {
		if policies, err = cmd.Flags().GetStringArray("policy"); err != nil {
			policies = []string{f.Value.String()}
		}
	}
	if cmd.Name() == "plan" {
		policies = append(policies, cmd.Flags().Args()...)
	}
	for _, text := range policies {
		if err := checkPolicy(text); err != nil {
			return err
		}
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

var nameBefore = regexp.MustCompile(`^[a-z][\w-]*=`)

// checkPolicy returns an error if a policy can't be parsed. The policy may begin with NAME=.
func checkPolicy(text string) error {
	if placeholder.MatchString(text) {
		return nil
	}
	_, err := retry.Parse(text)
	if name := nameBefore.FindString(text); err != nil && name != "" {
		_, err = retry.Parse(strings.TrimPrefix(text, name))
	}
	return err
}

// flagsOfOthers are flags of other programs that the pages mention.
var flagsOfOthers = []string{"session-id", "resume", "continue", "session", "format", "fork-session", "output-format", "permission-mode", "sandbox", "profile", "output-sync", "eval", "command"} // assistants, make, interpreters

// Every flag that a sentence mentions exists in some command.
func TestTheFlagsThatPagesNameExist(t *testing.T) {
	t.Parallel()
	known := slices.Clone(flagsOfOthers)
	var collect func(*cobra.Command)
	collect = func(cmd *cobra.Command) {
		cmd.InitDefaultHelpFlag()
		cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
		for _, c := range cmd.Commands() {
			collect(c)
		}
	}
	collect(allCommands())
	named, n := regexp.MustCompile("`--([a-z][a-z-]+)[^`]*`"), 0
	for _, name := range clitest.Pages(t) {
		for _, m := range named.FindAllStringSubmatch(clitest.ReadPage(t, name), -1) {
			n++
			if !slices.Contains(known, m[1]) {
				t.Errorf("%s names --%s, which no verb has", name, m[1])
			}
		}
	}
	if n < 60 {
		t.Errorf("the pages name %d flags", n)
	}
}
