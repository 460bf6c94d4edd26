//go:build unix

package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// visitCommands calls do for every command that the help lists, except help and completion, which
// are those of the flag library.
func visitCommands(do func(*cobra.Command)) {
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		do(cmd)
		for _, sub := range manCommands(cmd) {
			visit(sub)
		}
	}
	for _, cmd := range allCommands().Commands() {
		if !cmd.Hidden {
			visit(cmd)
		}
	}
}

func TestHelpHasTheTaskThenAnExampleThenFlags(t *testing.T) {
	t.Parallel()
	visitCommands(func(cmd *cobra.Command) {
		if !cmd.Runnable() { // a topic
			return
		}
		help := clitest.Run(t, append(strings.Fields(cmd.CommandPath())[1:], "--help")...).Out
		last := -1
		task, _, _ := strings.Cut(cmd.Long, "\n")
		for _, part := range []string{task, "\nUsage:\n  tideover ", "\nExamples:\n  ", "lags:\n"} {
			at := strings.Index(help, part)
			if at <= last {
				t.Errorf("%s --help: %q is missing, or not after the part before it", cmd.CommandPath(), part)
			}
			last = at
		}
		for line := range strings.Lines(help) {
			if strings.Count(line, "(default") > 1 || strings.Contains(line, "(default 0)") || strings.Contains(line, "(default 0s)") {
				t.Errorf("%s --help: %q", cmd.CommandPath(), line)
			}
		}
	})
}

func TestShortFlags(t *testing.T) {
	t.Parallel()
	want := map[string]string{"json": "j", "server": "s", "config": "c", "quiet": "q", "follow": "f", "yes": "y", "out": "o", "limit": "n", "lines": "n", "policy": "p"}
	meanings := map[string][]string{
		"c": {"config"}, "f": {"file", "follow"}, "h": {"help"}, "i": {"input"}, "j": {"json"}, "k": {"kind"},
		"n": {"attempts", "limit", "lines"}, // how many
		"o": {"out", "output"}, "p": {"policy"}, "q": {"quiet"}, "r": {"relay"}, "s": {"server"}, "v": {"version"}, "w": {"wait"}, "y": {"yes"},
	}
	visitCommands(func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if w := want[f.Name]; w != "" && f.Shorthand != w {
				t.Errorf("%s: --%s has the short form %q, want %q", cmd.CommandPath(), f.Name, f.Shorthand, w)
			}
			if f.Shorthand != "" && !slices.Contains(meanings[f.Shorthand], f.Name) {
				t.Errorf("%s: -%s means --%s, but elsewhere %q", cmd.CommandPath(), f.Shorthand, f.Name, meanings[f.Shorthand])
			}
		})
	})
}
