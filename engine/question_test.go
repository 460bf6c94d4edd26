package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/enginetest"
)

// deploy asks before it deploys.
func deploy(q engine.Question, opts ...engine.AwaitOption) *engine.Workflow {
	return engine.MustFlow("deploy", func(f *engine.Flow, _ int) (string, error) {
		a, err := engine.Ask(f, "deploy", q, opts...)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s by %q: %s", a.Choice, a.By, a.Words), nil
	})
}

func TestAsk(t *testing.T) {
	w := deploy(engine.Question{Text: "Deploy 1.2 to production?", Who: []string{"ada", "bob"}}, engine.Within(2*day))
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		time.Sleep(2 * time.Second)
		run := flowRun(t, e, id)
		q := operations(run, "ask", "deploy")
		if run.State != engine.StateWaiting || !run.Asking || len(q) != 1 || q[0].Question == nil || q[0].Question.Text != "Deploy 1.2 to production?" || len(q[0].Question.Choices) != 2 {
			t.Fatalf("%s, asking %v: %+v", run.State, run.Asking, q)
		}
		for _, c := range []struct {
			name, choice, by string
			is               error
			text             string
		}{
			{"deploy", "approve", "eve", engine.ErrMayNotAnswer, `answer: "eve" may not answer this question: it is for ada, bob`},
			{"deploy", "perhaps", "ada", engine.ErrNotAChoice, `answer: "perhaps" is not one of the choices: approve, reject`},
			{"other", "approve", "ada", engine.ErrState, `does not ask "other" now`},
		} {
			if err := e.Answer(t.Context(), id, c.name, engine.Answer{Choice: c.choice, By: c.by}); !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("answer %q by %s: %v", c.choice, c.by, err)
			}
		}
		if err := e.Signal(t.Context(), id, "deploy", engine.Answer{Choice: "approve"}); err != nil {
			t.Error(err) // a signal with the name of a question does not answer it
		}
		if err := e.Answer(t.Context(), id, "deploy", engine.Answer{Choice: "approve", By: "ada", Words: "looks good"}); err != nil {
			t.Fatal(err)
		}
		run = endOfFlow(t, e, id)
		wantRun(t, run, engine.StateSucceeded, `"approve by \"ada\": looks good"`)
		if !strings.Contains(fmt.Sprint(run.Notes), "deploy answered by ada: approve: looks good") {
			t.Errorf("the notes do not have the answer: %v", run.Notes)
		}
		if q := operations(run, "ask", "deploy")[0].Question; q == nil || q.Text != "Deploy 1.2 to production?" {
			t.Errorf("after the answer the question is %+v", q)
		}
		var a engine.Answer
		if err := json.Unmarshal(operations(run, "ask", "deploy")[0].Output, &a); err != nil || a.By != "ada" || a.At.IsZero() {
			t.Errorf("the result: %+v, %v", a, err)
		}
		if err := e.Answer(t.Context(), id, "deploy", engine.Answer{Choice: "reject", By: "bob"}); !errors.Is(err, engine.ErrState) {
			t.Errorf("a second answer: %v", err)
		}
	}, w)
}

// TestAskTwice answers a question that has an answer, while the run continues.
func TestAskTwice(t *testing.T) {
	w := engine.MustFlow("two", func(f *engine.Flow, _ int) (string, error) {
		if _, err := engine.Ask(f, "first", engine.Question{Text: "Ready?"}); err != nil {
			return "", err
		}
		a, err := engine.Ask(f, "second", engine.Question{Text: "Which?", Choices: []string{"red", "green"}}, engine.ForKey("x"))
		return a.Choice, err
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		flowRun(t, e, id)
		if err := e.Answer(t.Context(), id, "first", engine.Answer{Choice: "approve", By: "ada"}); err != nil {
			t.Fatal(err)
		}
		flowRun(t, e, id)
		if err := e.Answer(t.Context(), id, "first", engine.Answer{Choice: "reject", By: "bob"}); !errors.Is(err, engine.ErrState) || !strings.Contains(err.Error(), "ada has answered first of run "+id+" already: approve") {
			t.Errorf("a second answer: %v", err)
		}
		if err := e.Answer(t.Context(), id, "second[x]", engine.Answer{Choice: "green", By: "bob"}); err != nil {
			t.Fatal(err)
		}
		wantRun(t, endOfFlow(t, e, id), engine.StateSucceeded, `"green"`)
	}, w)
}

func TestAskNobodyAnswers(t *testing.T) {
	for _, c := range []struct{ choice, state, text string }{
		{"reject", engine.StateSucceeded, `reject by \"\"`},
		{"", engine.StateDead, "operation deploy: no answer in time"},
	} {
		w := deploy(engine.Question{Text: "Deploy?", Default: c.choice}, engine.Within(day))
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			begin := time.Now()
			run := e.Run(w, 1)
			wantRun(t, run, c.state, c.text)
			if took := time.Since(begin); took < day || took > 2*day {
				t.Errorf("after %v", took)
			}
		}, w)
	}
}

func TestAskWrongQuestions(t *testing.T) {
	for _, c := range []struct {
		q    engine.Question
		opts []engine.AwaitOption
		text string
	}{
		{engine.Question{}, nil, "text: must have"},
		{engine.Question{Text: "?", Default: "approve"}, nil, "default: it needs Within"},
		{engine.Question{Text: "?", Default: "later"}, []engine.AwaitOption{engine.Within(day)}, `default: "later" is not one of the choices approve, reject`},
		{engine.Question{Text: "?", Choices: []string{"a", "a"}}, nil, `choices: "a" is there twice`},
		{engine.Question{Text: "?", Choices: make([]string, 21)}, nil, "choices: 21, at most 20"},
		{engine.Question{Text: "?", Choices: []string{"\n"}}, nil, `choices: "\n" must have`},
		{engine.Question{Text: "?", Who: []string{""}}, nil, "who: a name is empty"},
	} {
		w := deploy(c.q, c.opts...)
		enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
			id := startFlow(t, e, w, 1)
			wantRun(t, flowRun(t, e, id), engine.StateNeedsHandler, "operation deploy: "+c.text)
		}, w)
	}
}

// TestAskIsListed lists the runs that wait for an answer.
func TestAskIsListed(t *testing.T) {
	w := deploy(engine.Question{Text: "Deploy?"})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		asking, other := startFlow(t, e, w, 1), startFlow(t, e, w, 1)
		time.Sleep(2 * time.Second)
		if err := e.Answer(t.Context(), other, "deploy", engine.Answer{Choice: "reject", By: "ada"}); err != nil {
			t.Fatal(err)
		}
		endOfFlow(t, e, other)
		page, err := e.List(t.Context(), engine.Filter{Asking: true, Fresh: true})
		if err != nil || len(page.Runs) != 1 || page.Runs[0].ID != asking || !page.Runs[0].Asking || len(page.Runs[0].Tags) != 0 {
			t.Errorf("%+v, %v", page, err)
		}
	}, w)
}

// TestAnswerToAnotherQuestionNamesTheOpenOne answers a question that the run does not ask.
func TestAnswerToAnotherQuestionNamesTheOpenOne(t *testing.T) {
	w := engine.MustFlow("deploy", func(f *engine.Flow, _ int) (string, error) {
		a, err := engine.Ask(f, "go-live", engine.Question{Text: "Now?"})
		return a.Choice, err
	})
	enginetest.Test(t, func(t *testing.T, e *enginetest.Engine) {
		id := startFlow(t, e, w, 1)
		flowRun(t, e, id)
		err := e.Answer(t.Context(), id, "approve", engine.Answer{Choice: engine.Approve, By: "ada"})
		if err == nil || !strings.Contains(err.Error(), `does not ask "approve" now; it asks "go-live"`) {
			t.Errorf("the error is %v", err)
		}
	}, w)
}
