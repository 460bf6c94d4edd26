//go:build unix

package exec_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// attemptEnd are the fields of an event that say how an attempt ended.
type attemptEnd struct {
	ExitCode int  `json:"exit_code"`
	Signal   int  `json:"signal,omitempty"`
	TimedOut bool `json:"timed_out,omitempty"`
}

// ends returns the kind and the result of each event that reports the end of an attempt.
func ends(t *testing.T, text string) (list []string) {
	t.Helper()
	for line := range strings.Lines(text) {
		var ev struct {
			Kind     string
			ExitCode *int `json:"exit_code"`
			attemptEnd
		}
		if err := json.Unmarshal([]byte(line), &ev); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if ev.ExitCode == nil {
			continue
		}
		ev.attemptEnd.ExitCode = *ev.ExitCode
		text, err := json.Marshal(ev.attemptEnd)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, ev.Kind+" "+string(text))
	}
	return list
}

func TestEventsSayHowAttemptsEnded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		flags  []string
		script string
		want   []string
	}{
		{
			"a success after a failure", nil, "test $TIDEOVER_ATTEMPT = 2 || exit 3",
			[]string{`attempt-failed {"exit_code":3}`, `succeeded {"exit_code":0}`},
		},
		{
			"a signal", []string{"-n", "1"}, "kill -USR1 $$",
			[]string{`attempt-failed {"exit_code":138,"signal":10}`, `gave-up {"exit_code":138,"signal":10}`},
		},
		{
			"a timeout", []string{"-n", "1", "--attempt-timeout", "100ms"}, "exec sleep 60",
			[]string{`attempt-failed {"exit_code":124,"signal":15,"timed_out":true}`, `gave-up {"exit_code":124,"signal":15,"timed_out":true}`},
		},
		{
			"no match", []string{"-n", "1", "--until-output", "never"}, "true",
			[]string{`attempt-failed {"exit_code":0}`, `gave-up {"exit_code":0}`},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			clitest.OnlyLinux(t) // other systems have other signal numbers
			got := clitest.Run(t, append(append([]string{"exec", "-q", "-p", clitest.Quick, "--events", "1"}, tt.flags...), "--", "sh", "-c", tt.script)...)
			if list := ends(t, got.Out); strings.Join(list, "\n") != strings.Join(tt.want, "\n") {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(list, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

func TestACommandThatIgnoresTERMIsSaidToBeKilled(t *testing.T) {
	t.Parallel()
	const script = `trap "" TERM; sleep 60`
	got := clitest.Run(t, "exec", "-n", "1", "--grace", "100ms", "--attempt-timeout", "3s", "--", "sh", "-c", script)
	clitest.WantIn(t, "stderr", got.Stderr, "timed out after 3s, then killed after a grace period of 100ms\n")
	got = clitest.Run(t, "exec", "-n", "1", "--grace", "100ms", "--total-timeout", "3s", "--", "sh", "-c", script)
	clitest.WantIn(t, "stderr", got.Stderr, "total timeout of 3s reached, then killed after a grace period of 100ms\n")
	got = clitest.Run(t, "exec", "-n", "1", "--attempt-timeout", "200ms", "--", "sleep", "60")
	clitest.WantIn(t, "stderr", got.Stderr, "timed out after 200ms\n")
}
