//go:build unix

package serve_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

const environmentFile = `version: 1
notify: {told: {run: [sh, -c, 'env > "$OUT.new"; mv "$OUT.new" "$OUT"'], env: {OUT: "DIR/message"}, env-inherit: [FOR_MESSAGES]}}
workflows:
  plain: {steps: [{id: a, run: [env]}]}
  named:
    env: {GIVEN: "${env:OF_ANOTHER}"}
    env-inherit: [FOR_WORKFLOW]
    steps:
      - {id: a, run: [env], env-inherit: ["FOR_*"]}
      - {id: b, run: [env]}
  all: {env-inherit: all, steps: [{id: a, run: [env]}]}
  dies:
    steps: [{id: a, run: ["false"], policy: fixed(1ms) attempts=1}]
    on-give-up: {run: [sh, -c, 'env > "$OUT.new"; mv "$OUT.new" "$OUT"'], env: {OUT: "DIR/give-up"}}
  tells:
    steps: [{id: a, run: ["false"], policy: fixed(1ms) attempts=1}]
    on-give-up: {notify: [told]}
`

// environmentOf returns the names of the variables in text, the output of the command env.
func environmentOf(text string) (names []string) {
	for line := range strings.SplitSeq(text, "\n") {
		if name, _, ok := strings.Cut(line, "="); ok {
			names = append(names, name)
		}
	}
	return names
}

// The server's environment contains secrets. Commands of steps and notifiers get only the standard
// variables and those that they name.
func TestCommandsGetOnlyTheVariablesThatTheyName(t *testing.T) {
	t.Parallel()
	dir := clitest.ShortDir(t)
	s := clitest.Serve(t, strings.ReplaceAll(environmentFile, "DIR", dir), dir,
		"OF_ANOTHER=planted-secret-of-another", "FOR_WORKFLOW=1", "FOR_STEP=1", "FOR_MESSAGES=1", "FOR_ALL=1",
		"TZ=UTC", "LC_ALL=C", "TIDEOVER_MINE=1", "TIDEOVER_TOKEN=planted-token", "TIDEOVER_GATEWAY_TOKEN=${env:OF_ANOTHER}",
		"TIDEOVER_SERVER_ENV_INHERIT=FOR_ALL")
	output := func(workflow, step string) string {
		t.Helper()
		o := s.RunCommand("run", workflow)
		clitest.WantCode(t, o, 0)
		id := strings.TrimSpace(o.Out)
		testwait.Until(t, workflow+" ends", func() bool { return s.Show(id).Finished() })
		for _, st := range s.Show(id).Steps {
			if st.Name == step {
				return strings.ReplaceAll(string(st.Output), `\n`, "\n")
			}
		}
		return ""
	}
	file := func(workflow, name string) string {
		t.Helper()
		clitest.WantCode(t, s.RunCommand("run", workflow), 0)
		path := filepath.Join(dir, name)
		testwait.Until(t, "there is "+name, func() bool { _, err := os.Stat(path); return err == nil })
		text, _ := os.ReadFile(path)
		return string(text)
	}
	always := []string{"PATH", "HOME", "TZ", "LC_ALL", "TIDEOVER_MINE", "FOR_ALL"}
	for _, c := range []struct {
		name, text string
		has, lacks []string
	}{
		{"a step", output("plain", "a"), append(always, "TIDEOVER_RUN_ID", "TIDEOVER_ATTEMPT"), []string{"OF_ANOTHER", "FOR_WORKFLOW", "FOR_STEP", "DIR"}},
		{"a step with names", output("named", "a"), append(always, "GIVEN", "FOR_WORKFLOW", "FOR_STEP", "FOR_MESSAGES"), []string{"OF_ANOTHER"}},
		{"a step of a workflow with names", output("named", "b"), append(always, "GIVEN", "FOR_WORKFLOW"), []string{"OF_ANOTHER", "FOR_STEP"}},
		{"a step that inherits all", output("all", "a"), append(always, "OF_ANOTHER", "FOR_STEP", "DIR"), nil},
		{"on-give-up", file("dies", "give-up"), append(always, "OUT", "TIDEOVER_RUN_ID"), []string{"OF_ANOTHER", "FOR_STEP"}},
		{"a notifier", file("tells", "message"), append(always, "OUT", "FOR_MESSAGES", "TIDEOVER_EVENT"), []string{"OF_ANOTHER", "FOR_STEP"}},
	} {
		names := environmentOf(strings.ReplaceAll(c.text, `{"stdout":"`, ""))
		for _, name := range c.has {
			if !slices.Contains(names, name) {
				t.Errorf("%s does not get %s: %q", c.name, name, names)
			}
		}
		for _, name := range append(c.lacks, "TIDEOVER_TOKEN", "TIDEOVER_GATEWAY_TOKEN", "TIDEOVER_SERVER_ENV_INHERIT") {
			if slices.Contains(names, name) {
				t.Errorf("%s gets %s", c.name, name)
			}
		}
	}
}

func TestConfigCheckListsVariablesThatCommandsDoNotGet(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "tideover.yaml")
	clitest.WriteFile(t, file, `version: 1
notify: {told: {run: [sh, -c, 'curl -d @- "$HOOK_URL"']}}
workflows:
  w:
    env: {GIVEN: x}
    env-inherit: [NAMED]
    steps:
      - id: a
        run: [sh, -c, 'x=1; for f in *; do echo "$f $x $1 $? $HOME $GIVEN $NAMED $TIDEOVER_RUN_ID"; done; deploy ${REGION:-eu} $SSH_AUTH_SOCK', sh, "{{ .input.x }}"]
      - {id: b, run: [deploy, "$LITERAL"]}
      - {id: c, run: [bash, -c, 'echo $OTHER'], env-inherit: all}
`)
	check := func(env ...string) string {
		t.Helper()
		cmd, _ := clitest.Command(t, "config", "check", file)
		cmd.Env = append(cmd.Env, env...)
		o := clitest.Finish(t, cmd)
		clitest.WantCode(t, o, 0)
		return o.Stderr
	}
	got := check()
	for _, want := range []string{
		"tideover.yaml:2:", "notify.told.run[2]: the command uses $HOOK_URL, which is not passed to it",
		"workflows.w.steps[0].run[2]: the command uses $REGION, $SSH_AUTH_SOCK, which is not passed to it: add it to env-inherit, or set it in env",
	} {
		clitest.WantIn(t, "config check", got, want)
	}
	if n := strings.Count(got, "warning: "); n != 2 {
		t.Errorf("%d warnings:\n%s", n, got)
	}
	if got := check("TIDEOVER_SERVER_ENV_INHERIT=all"); got != "" {
		t.Errorf("with all variables inherited: %s", got)
	}
}
