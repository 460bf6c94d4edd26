//go:build unix

package serve_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

// brokenOrder is a configuration with a mistake in the command of its last step.
const brokenOrder = `version: 1
workflows:
  order:
    input: {size: large}
    steps:
      - id: pay
        run: [sh, -c, 'echo x >> "$DIR/paid"; echo "{\"paid\": \"$1\"}"', sh, "{{ .input.size }}"]
        policy: fixed(1ms) attempts=2
      - id: ship
        needs: [pay]
        run: [sh, -c, 'echp "$1"', sh, "{{ .steps.pay.output.paid }} {{ .input.size }}"]
        policy: fixed(1ms) attempts=1
`

// A run fails because of a mistake in the configuration. After the file is fixed, retry --latest
// completes the run, and the step that had succeeded does not run again.
func TestADeadRunIsRepairedByFixingTheFile(t *testing.T) {
	t.Parallel()
	s := clitest.Serve(t, brokenOrder, "")
	paid := func(want int) {
		t.Helper()
		if n := clitest.CountLines(filepath.Join(s.Folder, "paid")); n != want {
			t.Errorf("pay ran %d times, want %d", n, want)
		}
	}
	die := func(args ...string) string {
		t.Helper()
		o := s.RunCommand(append([]string{"run", "order", "--wait", "--json"}, args...)...)
		clitest.WantCode(t, o, cli.CodeFailed)
		_, id, _ := strings.Cut(o.Out, `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
		return id
	}
	latest := func(output string, args ...string) {
		t.Helper()
		o := s.RunCommand(append([]string{"retry"}, args...)...)
		clitest.WantCode(t, o, 0)
		s.WaitForSuccess(strings.Fields(o.Out)[:1])
		clitest.WantIn(t, "the output", string(s.Show(strings.TrimSpace(o.Out)).Output), output)
	}

	o := s.RunCommand("run", "order", "--key", "first", "--wait")
	clitest.WantCode(t, o, cli.CodeFailed)
	clitest.WantIn(t, "the message", o.Stderr, "if the workflow was changed to repair it, tideover retry --latest ")
	first := s.Show("first").ID
	paid(1)

	repaired := strings.Replace(strings.Replace(brokenOrder, "echp", "echo", 1), "attempts=2", "attempts=9", 1)
	s.Reload(repaired)
	clitest.WantCode(t, s.RunCommand("retry", "first"), 0) // uses the old definition, with the mistake
	o = s.RunCommand("run", "order", "--key", "first", "--wait")
	clitest.WantCode(t, o, cli.CodeFailed)
	latest("large large", "--latest", "first")
	paid(1)
	if i := s.Show(first); i.State != "replaced" {
		t.Errorf("the first run is %s", i.State)
	}

	t.Log("a default that is new, and another input")
	s.Reload(brokenOrder)
	second, third := die(), die()
	paid(3)
	s.Reload(strings.Replace(strings.Replace(repaired, "{size: large}", "{size: large, color: red}", 1), "}} {{ .input.size }}", "}} {{ .input.color }}", 1))
	latest("large red", "--latest", second)
	paid(3)
	latest("small red", "--latest", third, "--input", `{"size": "small"}`)
	paid(4)
	clitest.WantIn(t, "both", s.RunCommand("retry", "--latest", "--from", "pay", "--input", "{}", second).Stderr, "--from and --input can't be used together: give one of them")

	t.Log("a step that has another name")
	s.Reload(brokenOrder)
	fourth, fifth := die(), die("--input", `{"size": "small"}`)
	paid(6)
	s.Reload(strings.NewReplacer("id: pay", "id: charge", "needs: [pay]", "needs: [charge]", ".steps.pay", ".steps.charge").Replace(repaired))
	o = s.RunCommand("retry", "--latest", fourth)
	clitest.WantCode(t, o, cli.CodeOwn)
	clitest.WantIn(t, "the refusal", o.Stderr, "step pay of run "+fourth+" succeeded")
	clitest.WantIn(t, "the refusal", o.Stderr, "tideover retry --latest --from STEP "+fourth+"; the steps are charge, ship")
	o = s.RunCommand("retry", "--dead", "--workflow", "order", "--latest", "--yes")
	clitest.WantCode(t, o, cli.CodeFailed)
	clitest.WantIn(t, "the refusal of many", o.Stderr, fifth+": ")
	clitest.WantIn(t, "the refusal of many", o.Out, "retried 0 of 2 runs")
	o = s.RunCommand("retry", "--latest", "--from", "ship", fourth)
	clitest.WantIn(t, "a step without a result", o.Stderr, "step ship needs step charge")
	clitest.WantIn(t, "an unknown step", s.RunCommand("retry", "--latest", "--from", "pay", fourth).Stderr, `workflow "order" has no step "pay"; known steps: charge, ship`)
	paid(6)
	latest("large large", "--latest", "--from", "charge", fourth)
	paid(7)

	t.Log("many")
	s.Reload(brokenOrder)
	sixth := die()
	paid(8)
	s.Reload(repaired)
	o = s.RunCommand("retry", "--dead", "--workflow", "order", "--latest", "--yes")
	clitest.WantCode(t, o, 0)
	clitest.WantIn(t, "many", o.Out, "retried 2 of 2 runs")
	for id, output := range map[string]string{fifth: "small small", sixth: "large large"} {
		next := s.Show(id).ReplacedBy
		s.WaitForSuccess([]string{next})
		clitest.WantIn(t, "the output", string(s.Show(next).Output), output)
	}
	paid(8)
}

// A run is started again with an input that has only the changed fields. The other fields have the
// defaults of the file, as with 'run'.
func TestRetryWithAnInputFillsInTheDefaults(t *testing.T) {
	t.Parallel()
	s := clitest.Serve(t, `version: 1
workflows:
  greet:
    input: {greeting: hello, who: stranger}
    steps:
      - {id: say, run: [sh, -c, 'test "$2" != stranger && echo "$1 $2"', sh, "{{ .input.greeting }}", "{{ .input.who }}"], policy: fixed(1ms) attempts=1}
`, "")
	clitest.WantCode(t, s.RunCommand("run", "greet", "--key", "first", "--wait"), cli.CodeFailed)
	o := s.RunCommand("retry", "--input", `{"who": "world"}`, "first")
	clitest.WantCode(t, o, 0)
	id := strings.TrimSpace(o.Out)
	s.WaitForSuccess([]string{id})
	clitest.WantIn(t, "the output", string(s.Show(id).Output), "hello world")
}
