//go:build unix

package cli

import (
	"slices"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestMistakesAreUnderstood(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"a verb with two letters swapped", []string{"exce", "--", "true"}, `unknown command "tideover exce"; did you mean "tideover exec"?`},
		{"a verb of two letters", []string{"rn"}, `did you mean "tideover run"?`},
		{"a verb that is nothing like another", []string{"frobnicate"}, `unknown command "tideover frobnicate"`},
		{"a word for another verb", []string{"replay", "order-4711"}, `did you mean "tideover retry --input"?`},
		{"a verb below another", []string{"sessions", "pase", "x"}, `unknown command "tideover sessions pase"; did you mean "tideover sessions pause"?`},
		{"a verb of few", []string{"config", "frobnicate"}, "want one of check, show"},
		{"a topic of the help", []string{"help", "nosuch"}, `unknown command "tideover nosuch"`},
		{"a topic that is nearly one", []string{"help", "polcy"}, `did you mean "tideover policy"?`},
		{"a topic below a verb", []string{"help", "exec", "flags"}, `unknown command "tideover exec flags"`},
		{"a shell", []string{"completion", "basj"}, `did you mean "tideover completion bash"?`},
		{"a flag with a letter less", []string{"watch", "--nam", "x", "--", "true"}, "did you mean --name?"},
		{"a flag of other tools", []string{"gateway", "--port", "80"}, "did you mean --listen?"},
		{"a flag that is nothing like another", []string{"status", "--frobnicate"}, "unknown flag --frobnicate\n"},
		{"a letter", []string{"status", "-Z"}, "unknown flag -Z"},
		{"an empty address", []string{"gateway", "--listen", ""}, "--listen: the value is empty"},
		{"an empty name", []string{"watch", "--name", "", "--", "true"}, "--name: the value is empty"},
		{"an empty server", []string{"status", "--server", ""}, "--server: the value is empty"},
		{"a value that is missing", []string{"status", "--server"}, "--server needs a value"},
		{"a switch that is none", []string{"status", "--json=perhaps"}, `--json: "perhaps" is not true or false`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t, tt.args...)
			clitest.WantCode(t, got, CodeOwn)
			clitest.WantIn(t, "stderr", got.Stderr, tt.want)
			if got.Out != "" {
				t.Errorf("stdout = %q, want nothing", got.Out)
			}
		})
	}
}

// Every command in the help is under a heading, and every heading lists existing commands.
func TestEveryVerbHasAHeading(t *testing.T) {
	t.Parallel()
	var grouped, listed []string
	for _, g := range commandGroups {
		grouped = append(grouped, g.verbs...)
	}
	for _, cmd := range allCommands().Commands() {
		if cmd.IsAvailableCommand() || cmd.Name() == "help" {
			listed = append(listed, cmd.Name())
		}
	}
	slices.Sort(grouped)
	slices.Sort(listed)
	if !slices.Equal(grouped, listed) {
		t.Errorf("headings for %q, want %q", grouped, listed)
	}
	help := clitest.Run(t, "--help").Out
	for _, g := range commandGroups {
		clitest.WantIn(t, "help", help, "\n"+g.title+"\n")
	}
}

// The help command works for commands, for topics and for itself.
func TestTheHelpVerb(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"help"}, {"help", "exec"}, {"help", "sessions", "pause"}, {"help", "completion"}, {"completion"}, {"config"}, {"help", "help"}} {
		got := clitest.Run(t, args...)
		clitest.WantCode(t, got, 0)
		clitest.WantIn(t, "stdout", got.Out, "Usage:")
	}
	clitest.WantIn(t, "completions", clitest.Run(t, "__complete", "help", "po").Out, "policy\tHow a policy is written")
}
