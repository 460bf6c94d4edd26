//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/retry"
)

// pages returns the names of all pages of the documentation. They are arguments of the function
// page.
func pages(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(docs + "*.md")
	if err != nil || len(found) < 20 {
		t.Fatalf("there are the pages %v: %v", found, err)
	}
	names := []string{"../README.md"}
	for _, path := range found {
		names = append(names, filepath.Base(path))
	}
	return names
}

// typedLine is a command on a page, with the output that the page shows below it.
type typedLine struct {
	text  string
	shown []string
}

// typedIn returns the command lines that run tideover, in the console and shell blocks of a page
// and in blocks that are indented by four spaces.
func typedIn(text string) (list []typedLine) {
	for _, b := range fencedIn(text) {
		switch b.language {
		case "console":
			list = append(list, consoleLines(b.text)...)
		case "sh":
			for line := range strings.Lines(strings.ReplaceAll(b.text, "\\\n", " ")) {
				list = append(list, typedLine{text: strings.TrimSpace(shellComment.ReplaceAllString(line, ""))})
			}
		}
	}
	for line := range strings.Lines(fence.ReplaceAllString(text, "")) {
		if rest, ok := strings.CutPrefix(line, "    tideover "); ok {
			list = append(list, typedLine{text: "tideover " + strings.TrimSpace(shellComment.ReplaceAllString(rest, ""))})
		}
	}
	return slices.DeleteFunc(list, func(l typedLine) bool { return len(invocations(l.text)) == 0 })
}

func consoleLines(text string) (list []typedLine) {
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			list = append(list, typedLine{text: strings.TrimSpace(shellComment.ReplaceAllString(command, ""))})
		} else if n := len(list); n > 0 && strings.TrimSpace(line) != "" {
			list[n-1].shown = append(list[n-1].shown, line)
		}
	}
	return list
}

var (
	quotedPart = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	separator  = regexp.MustCompile(`\|\||&&| \d>|[|;&<>()]`)
)

// invocations returns the parts of a shell line that run tideover.
func invocations(line string) (list []string) {
	hidden := quotedPart.ReplaceAllStringFunc(line, func(q string) string { return strings.Repeat("q", len(q)) })
	begin := 0
	for _, at := range append(separator.FindAllStringIndex(hidden, -1), []int{len(line), len(line)}) {
		part := variables.ReplaceAllString(strings.TrimSpace(line[begin:at[0]]), "")
		if strings.HasPrefix(part, "tideover ") {
			list = append(list, part)
		}
		begin = at[1]
	}
	return list
}

// Every command line on the pages, in blocks and in sentences, is accepted by tideover's own
// parser.
func TestTheCommandsOfThePagesAreRight(t *testing.T) {
	t.Parallel()
	all := 0
	for _, name := range pages(t) {
		var list []string
		for _, line := range typedIn(page(t, name)) {
			list = append(list, invocations(line.text)...)
		}
		for _, line := range commandLines(page(t, name)) {
			if !isCommandName(line) {
				list = append(list, invocations(line)...)
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
var flagsOfOthers = []string{"session-id", "resume", "fork-session", "output-format", "permission-mode", "sandbox", "profile", "output-sync", "eval", "command"} // assistants, make, interpreters

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
	for _, name := range pages(t) {
		for _, m := range named.FindAllStringSubmatch(page(t, name), -1) {
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
