//go:build unix

package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
	"github.com/tideover/tideover/internal/testfile"
)

// The tables of the pages have the exit codes with which the commands can end.
func TestExitCodesOfThePages(t *testing.T) {
	t.Parallel()
	var exec [][]string
	commands := map[exitLine][]string{} // by exit code, with its meaning for them
	meanings := map[int][]exitLine{}    // in the order of the commands
	visitCommands(func(cmd *cobra.Command) {
		if !listsExits(cmd) {
			return
		}
		name := strings.TrimPrefix(cmd.CommandPath(), "tideover ")
		for _, line := range exitLines(cmd) {
			if name == "exec" {
				exec = append(exec, []string{line.label, line.means})
			}
			if commands[line] == nil {
				meanings[line.code] = append(meanings[line.code], line)
			}
			commands[line] = append(commands[line], "`"+name+"`")
		}
	})
	var rows [][]string
	for _, general := range exitMeanings {
		in := ""
		if commands[general] != nil {
			in = "all others"
		}
		rows = append(rows, []string{general.label, in, general.means})
		for _, line := range meanings[general.code] {
			if line != general {
				rows = append(rows, []string{"", strings.Join(commands[line], ", "), line.means})
			}
		}
	}
	testfile.Section(t, "../../../../docs/commands.md", "exit codes", testfile.Table(t, []string{"code", "commands", "meaning"}, rows))
	testfile.Section(t, "../../../../docs/exec.md", "exit codes", testfile.Table(t, []string{"code", "meaning"}, exec))
}

// The help of a command lists the codes with which it can end.
func TestExitCodesInTheHelp(t *testing.T) {
	t.Parallel()
	for verb, codes := range map[string]string{
		"run":             "0 1 2 3 125 128+n",
		"show":            "0 3 125 128+n",
		"status":          "0 125 128+n",
		"workflows pause": "0 3 125 128+n",
		"retry":           "0 1 3 125 128+n",
		"health":          "0 1 125 128+n",
		"providers":       "0 3 125 128+n",
		"sessions ls":     "0 125 128+n",
		"sessions show":   "0 3 125 128+n",
		"serve":           "0 125 128+n",
		"gateway":         "0 125 128+n",
		"plan":            "0 125 128+n",
		"sim":             "0 125 128+n",
		"exec":            "0 N 1 124 125 126 127 128+n",
		"nip90 request":   "0 1 2 4 5 6 124 125 128+n",
		"sessions":        "0 125 128+n",
		"config":          "",
	} {
		help := clitest.Run(t, append(strings.Fields(verb), "--help")...).Out
		_, section, _ := strings.Cut(help, "\nExit codes:\n")
		section, _, _ = strings.Cut(section, "\n\n")
		var got []string
		for line := range strings.Lines(section) {
			if fields := strings.Fields(line); !strings.HasPrefix(line, "   ") {
				got = append(got, fields[0])
			}
		}
		if got := strings.Join(got, " "); got != codes {
			t.Errorf("%s --help has the exit codes %q, want %q", verb, got, codes)
		}
	}
}

// A command that ends with a code that it has not declared ends with that of an error of tideover.
func TestACommandEndsOnlyWithItsExitCodes(t *testing.T) {
	t.Parallel()
	declared := exits{CodeUnknown: "unknown thing"}.declare(&cobra.Command{})
	passing := exits{codeOfCommand: ""}.declare(&cobra.Command{})
	for _, tt := range []struct {
		cmd        *cobra.Command
		code, want int
	}{
		{declared, 0, 0}, {declared, 1, CodeOwn}, {declared, 3, 3}, {declared, 127, CodeOwn}, {declared, 130, 130},
		{passing, 1, 1}, {passing, 77, 77},
	} {
		if got := exitCode(tt.cmd, tt.code); got != tt.want {
			t.Errorf("a command with the codes %v ends with %d instead of %d, want %d", exitLines(tt.cmd), got, tt.code, tt.want)
		}
	}
}

// The same mistake has the same exit code in every command.
func TestAnExitCodeMeansTheSameInEveryCommand(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	for code, lines := range map[int][]string{
		CodeOwn: {
			"plan htpp", "sim herd --policy htpp", "advise outage --success 99% --policy htpp", "exec --policy htpp -- true", "watch --policy htpp -- true",
			"sim no-such.yaml", "advise no-such.yaml --success 99%", "detect no-such.txt", "config check no-such.yaml", "serve --config no-such.yaml", "notify test phone --config no-such.yaml",
			"exec --notify phone -- true", "watch --notify phone -- true", "run --jsn echo", "sim --jsn", "serve --jsn", "nothing", "help nothing",
		},
		CodeUnknown: {
			"run nothing", "runs --workflow nothing", "dead --workflow nothing", "events --run nothing", "show nothing", "retry nothing", "cancel nothing", "wake nothing", "signal nothing paid", "approve nothing",
			"workflows pause nothing", "schedules run nothing", "sessions show nothing", "notify test phone",
		},
	} {
		for _, line := range slices.Sorted(slices.Values(lines)) {
			if got := s.runCommand(strings.Fields(line)...); got.Code != code {
				t.Errorf("%s: exit code %d, want %d: %s", line, got.Code, code, got.Stderr)
			}
		}
	}
}
