//go:build unix

package cli

import (
	"path/filepath"
	"strings"
	"testing"
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
	s := serveFile(t, brokenOrder, "")
	paid := func(want int) {
		t.Helper()
		if n := lines(filepath.Join(s.dir, "paid")); n != want {
			t.Errorf("pay ran %d times, want %d", n, want)
		}
	}
	die := func(args ...string) string {
		t.Helper()
		o := s.runCommand(append([]string{"run", "order", "--wait", "--json"}, args...)...)
		wantCode(t, o, codeDead)
		_, id, _ := strings.Cut(o.out, `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
		return id
	}
	latest := func(output string, args ...string) {
		t.Helper()
		o := s.runCommand(append([]string{"retry"}, args...)...)
		wantCode(t, o, 0)
		s.waitForSuccess(strings.Fields(o.out)[:1])
		wantIn(t, "the output", string(s.show(strings.TrimSpace(o.out)).Output), output)
	}

	o := s.runCommand("run", "order", "--key", "first", "--wait")
	wantCode(t, o, codeDead)
	wantIn(t, "the message", o.stderr, "if the workflow was changed to repair it, tideover retry --latest ")
	first := s.show("first").ID
	paid(1)

	repaired := strings.Replace(strings.Replace(brokenOrder, "echp", "echo", 1), "attempts=2", "attempts=9", 1)
	s.reload(repaired)
	wantCode(t, s.runCommand("retry", "first"), 0) // uses the old definition, with the mistake
	o = s.runCommand("run", "order", "--key", "first", "--wait")
	wantCode(t, o, codeDead)
	latest("large large", "--latest", "first")
	paid(1)
	if i := s.show(first); i.State != "replaced" {
		t.Errorf("the first run is %s", i.State)
	}

	t.Log("a default that is new, and another input")
	s.reload(brokenOrder)
	second, third := die(), die()
	paid(3)
	s.reload(strings.Replace(strings.Replace(repaired, "{size: large}", "{size: large, color: red}", 1), "}} {{ .input.size }}", "}} {{ .input.color }}", 1))
	latest("large red", "--latest", second)
	paid(3)
	latest("small red", "--latest", third, "--input", `{"size": "small"}`)
	paid(4)
	wantIn(t, "both", s.runCommand("retry", "--latest", "--from", "pay", "--input", "{}", second).stderr, "--from and --input can't be used together: give one of them")

	t.Log("a step that has another name")
	s.reload(brokenOrder)
	fourth, fifth := die(), die("--input", `{"size": "small"}`)
	paid(6)
	s.reload(strings.NewReplacer("id: pay", "id: charge", "needs: [pay]", "needs: [charge]", ".steps.pay", ".steps.charge").Replace(repaired))
	o = s.runCommand("retry", "--latest", fourth)
	wantCode(t, o, codeOwn)
	wantIn(t, "the refusal", o.stderr, "step pay of run "+fourth+" succeeded")
	wantIn(t, "the refusal", o.stderr, "tideover retry --latest --from STEP "+fourth+"; the steps are charge, ship")
	o = s.runCommand("retry", "--dead", "--workflow", "order", "--latest", "--yes")
	wantCode(t, o, codeDead)
	wantIn(t, "the refusal of many", o.stderr, fifth+": ")
	wantIn(t, "the refusal of many", o.out, "retried 0 of 2 runs")
	o = s.runCommand("retry", "--latest", "--from", "ship", fourth)
	wantIn(t, "a step without a result", o.stderr, "step ship needs step charge")
	wantIn(t, "an unknown step", s.runCommand("retry", "--latest", "--from", "pay", fourth).stderr, `workflow "order" has no step "pay"; known steps: charge, ship`)
	paid(6)
	latest("large large", "--latest", "--from", "charge", fourth)
	paid(7)

	t.Log("many")
	s.reload(brokenOrder)
	sixth := die()
	paid(8)
	s.reload(repaired)
	o = s.runCommand("retry", "--dead", "--workflow", "order", "--latest", "--yes")
	wantCode(t, o, 0)
	wantIn(t, "many", o.out, "retried 2 of 2 runs")
	for id, output := range map[string]string{fifth: "small small", sixth: "large large"} {
		next := s.show(id).ReplacedBy
		s.waitForSuccess([]string{next})
		wantIn(t, "the output", string(s.show(next).Output), output)
	}
	paid(8)
}

// A run is started again with an input that has only the changed fields. The other fields have the
// defaults of the file, as with 'run'.
func TestRetryWithAnInputFillsInTheDefaults(t *testing.T) {
	t.Parallel()
	s := serveFile(t, `version: 1
workflows:
  greet:
    input: {greeting: hello, who: stranger}
    steps:
      - {id: say, run: [sh, -c, 'test "$2" != stranger && echo "$1 $2"', sh, "{{ .input.greeting }}", "{{ .input.who }}"], policy: fixed(1ms) attempts=1}
`, "")
	wantCode(t, s.runCommand("run", "greet", "--key", "first", "--wait"), codeDead)
	o := s.runCommand("retry", "--input", `{"who": "world"}`, "first")
	wantCode(t, o, 0)
	id := strings.TrimSpace(o.out)
	s.waitForSuccess([]string{id})
	wantIn(t, "the output", string(s.show(id).Output), "hello world")
}
