//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// quest is a workflow that waits for the signal "paid", and asks two questions, the second one to ada.
var quest = engine.MustFlow("quest", func(f *engine.Flow, _ json.RawMessage) (string, error) {
	paid, err := engine.Await[json.RawMessage](f, "paid")
	if err != nil {
		return "", err
	}
	first, err := engine.Ask(f, "ship", engine.Question{Text: "Ship it?"})
	if err != nil {
		return "", err
	}
	second, err := engine.Ask(f, "colour", engine.Question{Text: "Which colour?", Choices: []string{"green", "light blue"}, Who: []string{"ada"}})
	return fmt.Sprintf("%s, %s by %s (%s), %s by %s", paid, first.Choice, first.By, first.Words, second.Choice, second.By), err
})

// untilAsking waits until a run asks the question.
func (s *inProcessServer) untilAsking(id, question string) {
	s.t.Helper()
	testwait.Until(s.t, id+" asks "+question, func() bool {
		info, err := s.engine.Get(s.t.Context(), id)
		if err != nil {
			return false
		}
		name, err := control.OnlyQuestion(info)
		return err == nil && name == question
	})
}

func TestSignalsAndAnswers(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	id := s.mustRun("run", "quest", "--key", "order/1")
	file := filepath.Join(t.TempDir(), "payment.json")
	if err := os.WriteFile(file, []byte(`{"eur": 5}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"signal"}, CodeOwn, "signal: no run given: want RUN NAME"},
		{[]string{"signal", id}, CodeOwn, "signal: no name of a signal given"},
		{[]string{"signal", id, "paid", "x"}, CodeOwn, `signal: unexpected argument "x"`},
		{[]string{"signal", "--key", "k", "paid"}, CodeOwn, "--workflow and --key name a run together"},
		{[]string{"signal", id, "paid", "--data", "{"}, CodeOwn, `--data: "{" is not JSON`},
		{[]string{"signal", id, "paid", "--data", "1", "--data-file", file}, CodeOwn, "can't be used together"},
		{[]string{"signal", id, "paid", "--data-file", file + "x"}, CodeOwn, "--data-file: open"},
		{[]string{"signal", id, "a b"}, CodeOwn, "name:"},
		{[]string{"signal", "nothing", "paid"}, CodeUnknown, "nothing"},
		{[]string{"signal", "--workflow", "quest", "--key", "nothing", "paid"}, CodeUnknown, `has the key "nothing"`},
		{[]string{"callback"}, CodeOwn, "callback: no run given"},
		{[]string{"callback", id}, CodeOwn, "callback: no name of a signal given"},
		{[]string{"callback", id, "paid", "--expires", "31d"}, CodeOwn, "--expires: 744h0m0s is not above 0 and at most 30d"},
		{[]string{"approve", id}, CodeOwn, "has no open question"},
		{[]string{"approve", id, "ship"}, CodeOwn, `does not ask "ship" now`},
		{[]string{"answer", id}, CodeOwn, "answer: no choice given"},
		{[]string{"reject"}, CodeOwn, "reject: no run given"},
	} {
		got := s.runCommand(c.args...)
		clitest.WantCode(t, got, c.code)
		clitest.WantIn(t, strings.Join(c.args, " "), got.Stderr, c.want)
	}

	if got := s.mustRun("signal", "--workflow", "quest", "--key", "order/1", "paid", "--data-file", file, "--id", "p1"); got != "p1" {
		t.Errorf("signal prints %q", got)
	}
	s.mustRun("signal", id, "paid", "--data", "6", "--id", "p1")
	s.untilAsking(id, "ship")
	clitest.WantIn(t, "runs --asking", s.mustRun("runs", "--asking"), ", asks")
	shown := s.mustRun("show", id)
	for _, want := range []string{"asks ship  Ship it?", "choices     approve, reject", "tideover approve " + id, "tideover reject " + id, "signal: paid from cli:"} {
		clitest.WantIn(t, "show", shown, want)
	}
	approved := s.runCommand("approve", id, "--words", "in stock") // the former name of --comment
	clitest.WantIn(t, "approve", approved.Out, id+" ship: approve")
	clitest.WantIn(t, "approve", approved.Stderr, "tideover: use --comment instead of --words\n")
	s.untilAsking(id, "colour")
	clitest.WantIn(t, "show", s.mustRun("show", id), "tideover answer "+id+" 'light blue'")

	refused := s.runCommand("answer", id, "green")
	clitest.WantCode(t, refused, CodeOwn)
	clitest.WantIn(t, "answer", refused.Stderr, "may not answer this question: it is for ada")
	as := func(args ...string) clitest.Outcome {
		cmd, _ := clitest.Command(t, append(args, "--server", s.tcp)...)
		s.env(cmd)
		cmd.Env = append(cmd.Env, "TIDEOVER_TOKEN="+clitest.TestToken+"-of-ada")
		return clitest.Finish(t, cmd)
	}
	wrong := as("answer", id, "colour", "red")
	clitest.WantCode(t, wrong, CodeOwn)
	clitest.WantIn(t, "answer", wrong.Stderr, `choice: answer: "red" is not one of the choices: green, light blue`)
	clitest.WantCode(t, as("answer", id, "light blue"), 0)
	s.waitForEnd(id)
	run, err := s.engine.Get(t.Context(), id)
	want := fmt.Sprintf(`"{\"eur\":5}, approve by %s (in stock), light blue by ada"`, httpserver.LocalName())
	if err != nil || string(run.Output) != want {
		t.Errorf("the output is %s, %v; want %s", run.Output, err, want)
	}
	clitest.WantIn(t, "show", s.mustRun("show", id), "approve by "+httpserver.LocalName()+": in stock")
	ended := s.runCommand("signal", id, "paid")
	clitest.WantCode(t, ended, CodeOwn)
	clitest.WantIn(t, "signal", ended.Stderr, "is succeeded, and takes no signals")
	clitest.WantIn(t, "events", s.mustRun("events", "--run", id, "--after", "0", "--kind", "signaled,asked"), "Asks ship: Ship it? (approve, reject)")
}

func TestCallbackOfTheCommand(t *testing.T) {
	t.Parallel()
	s := newInProcessServer(t)
	id := s.mustRun("run", "quest")
	url := s.mustRun("callback", id, "paid", "--expires", "2h")
	resp, err := http.Post(url, "application/json", strings.NewReader("7"))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %s", url, resp.Status)
	}
	s.untilAsking(id, "ship")
	var made admin.Callback
	if err := json.Unmarshal([]byte(s.mustRun("callback", id, "paid", "--json")), &made); err != nil || made.Expires.IsZero() {
		t.Errorf("%+v, %v", made, err)
	}
	s.mustRun("cancel", id)
}

func TestHowAQuestionLooks(t *testing.T) {
	t.Parallel()
	s := screen{now: noon, zone: time.UTC}
	run := &engine.Info{
		ID: "01k9v3q0h2f8d7w5j3m1n6p4rt", Workflow: "deploy", State: "waiting", Asking: true, Created: at(-time.Hour), Step: "roll", Next: later(time.Hour),
		Operations: &engine.OpCounts{Total: 4, Succeeded: 1, Failed: 1, Waiting: 2},
		Steps: []engine.StepInfo{
			{Name: "function", Kind: "function", Status: "waiting"},
			{
				Name: "ready", Kind: "ask", Status: "succeeded", Called: later(-50 * time.Minute), Ended: later(-40 * time.Minute),
				Question: &engine.Question{Text: "Ready?", Choices: []string{"yes", "no"}}, Output: json.RawMessage(`{"choice":"yes","by":"ada","words":"all \u001b green"}`),
			},
			{
				Name: "sure", Kind: "ask", Status: "failed", Called: later(-40 * time.Minute), Ended: later(-30 * time.Minute), Error: "no answer in time", Code: "no-event",
				Question: &engine.Question{Text: "Sure?", Choices: []string{"yes", "no"}, Default: "yes"},
			},
			{
				Name: "roll", Kind: "ask", Status: "waiting", Called: later(-30 * time.Minute), Next: later(time.Hour),
				Question: &engine.Question{Text: "Roll out 1.2?\n" + hostile, Choices: []string{"approve", "reject", "wait a day"}, Who: []string{"ada", "bob"}, Default: "reject"},
			},
			{Name: "other", Kind: "ask", Status: "waiting", Called: later(-20 * time.Minute), Question: &engine.Question{Text: "Other?", Choices: []string{"it's"}}},
		},
		Notes: []engine.Note{{At: at(-40 * time.Minute), What: "signal", Text: "ready answered by ada: yes: all green"}},
	}
	goldenLines(t, "show-question.txt", renderShow(run, &s))
	if _, err := control.OnlyQuestion(run); err == nil || !strings.Contains(err.Error(), "several open questions: name one of roll, other") {
		t.Errorf("the only question: %v", err)
	}
}
