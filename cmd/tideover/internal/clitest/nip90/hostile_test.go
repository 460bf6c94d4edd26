//go:build unix

package nip90_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

func TestWorkflowsThatStrangersCouldUseAreRefused(t *testing.T) {
	t.Parallel()
	for step, want := range map[string]string{
		`run: [sh, -c, "echo {{ .input.task }}"]`: "a template can't be part of a shell script",
		`run: [x], policy: task attempts=21`:      "attempts: a job can have at most 20",
	} {
		text := strings.Replace(offering("[x]", "", nostrtest.New(t)), "run: [x]\n      env: {TASK: \"{{ .input.task }}\"}", "workflow: w", 1)
		file := filepath.Join(clitest.ShortDir(t), "tideover.yaml")
		clitest.WriteFile(t, file, text+"workflows: {w: {steps: [{id: only, "+step+"}]}}\n")
		cmd, _ := clitest.Command(t, "config", "check", file)
		cmd.Env = append(cmd.Env, "DVM_KEY="+dvmKey)
		got := clitest.Finish(t, cmd)
		clitest.WantCode(t, got, cli.CodeFailed)
		clitest.WantIn(t, "stderr", got.Out+got.Stderr, want)
		clitest.WantIn(t, "stderr", got.Out+got.Stderr, `(step "only" is reached from nip90.kinds.5900)`)
	}
}

// No command that serve runs, for a job, a step, a session or a notifier, has the provider's key in
// its environment.
func TestNoCommandHasTheProvidersKey(t *testing.T) {
	t.Parallel()
	r, dir := nostrtest.New(t), clitest.ShortDir(t)
	says := func(name string) string {
		return fmt.Sprintf(`[sh, -c, 'echo "key=$DVM_KEY" > %s; echo "key=$DVM_KEY"']`, filepath.Join(dir, name))
	}
	text := offering(says("job"), "", r) + fmt.Sprintf(`notify: {told: {run: %s, on: [gave-up]}}
sessions: {kept: {start: %s, resume-any: true}}
workflows:
  w:
    steps: [{id: a, run: %s}, {id: b, needs: [a], run: ["false"], policy: fixed(1s) attempts=1}]
    on-give-up: {run: %s}
`, says("told"), says("session"), says("step"), says("alarm"))
	s := serveJobs(t, text, dir, r)
	request := request(clitest.NewCustomer(t), "do it")
	r.Inject(request)
	r.Await(t, func(stored []*nostr.Event) bool { return len(clitest.Results(clitest.AnswersTo(stored, request))) > 0 })
	if got := clitest.Results(clitest.AnswersTo(r.Events(), request))[0]; got.Content != "key=" {
		t.Errorf("the result is %q", got.Content)
	}
	s.RunCommand("run", "w")
	for _, name := range []string{"job", "step", "alarm", "told", "session"} {
		testwait.Until(t, "the command of "+name, func() bool {
			data, _ := os.ReadFile(filepath.Join(dir, name))
			return strings.HasSuffix(string(data), "\n")
		})
		if data, err := os.ReadFile(filepath.Join(dir, name)); string(data) != "key=\n" {
			t.Errorf("%s: the command had %q, %v", name, data, err)
		}
	}
}

func TestAChattyStderrLeavesTheResultWhole(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	serveJobs(t, offering(`[sh, -c, 'head -c 70000 /dev/zero | tr "\\0" x >&2; echo all of it']`, "", r), "", r)
	request := request(clitest.NewCustomer(t), "do it")
	r.Inject(request)
	r.Await(t, func(stored []*nostr.Event) bool { return len(clitest.Results(clitest.AnswersTo(stored, request))) > 0 })
	if e := clitest.Results(clitest.AnswersTo(r.Events(), request))[0]; e.Content != "all of it" || e.Tags.Find("status").Value() != "success" {
		t.Errorf("the result is %q with %v", e.Content, e.Tags.Find("status"))
	}
}
