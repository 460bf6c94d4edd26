package pages

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// openQuestion is a question of a run that waits for an answer.
type openQuestion struct {
	ID      string // of the HTML element
	Name    string
	Text    string
	Choices []Offer
	Who     string     // those who may answer; "" means everyone who may change runs
	Until   *time.Time // nil means no deadline
	Default string     // the answer after the deadline; "" means none
	Refused string     // why the viewer may not answer; "" if the viewer may
}

// openQuestions returns the open questions of a run, as the viewer sees them.
func openQuestions(i *engine.Info, viewer Caller) (list []openQuestion) {
	for _, s := range control.Questions(i) {
		q := openQuestion{
			ID: "ask-" + Hash(s.Name, 6), Name: s.Name, Text: s.Question.Text, Who: strings.Join(s.Question.Who, ", "),
			Until: s.Next, Default: s.Question.Default, Refused: control.MayAnswer(s.Question, cmp.Or(viewer.Name, unnamed), viewer.ReadOnly),
		}
		for n, choice := range s.Question.Choices {
			form := url.Values{"question": {s.Name}, "choice": {strconv.Itoa(n)}}
			q.Choices = append(q.Choices, Offer{Name: "answer", Label: choice, URL: ActionURL(RunURL(i.ID), "answer") + "?" + form.Encode(), Danger: choice == engine.Reject})
		}
		list = append(list, q)
	}
	return list
}

// answered is the answer to a question of a run.
type answered struct {
	engine.Answer
	Asked string // the question
}

// newAnswered returns the question of an operation and its answer; nil if it asks nothing.
func newAnswered(s *engine.StepInfo) *answered {
	if s.Question == nil {
		return nil
	}
	a, _ := control.AnswerOf(s)
	return &answered{a, s.Question.Text}
}

// chosenAnswer returns the question and the choice that a request names. The form has the index of the
// choice, because the page may show its text without secrets.
func (h runActions) chosenAnswer(r *http.Request) (s *engine.StepInfo, choice string, err error) {
	i, err := h.control.Runs.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		return nil, "", err
	}
	name := r.FormValue("question")
	open := control.Questions(i)
	at := slices.IndexFunc(open, func(s *engine.StepInfo) bool { return s.Name == name })
	if at < 0 {
		return nil, "", h.notOpen(i, name)
	}
	n, err := strconv.Atoi(r.FormValue("choice"))
	if err != nil || n < 0 || n >= len(open[at].Question.Choices) {
		return nil, "", control.Invalid("choice", "there is no such choice")
	}
	return open[at], open[at].Question.Choices[n], nil
}

// notOpen returns the error for a question that is not open: who has answered it, if it has an answer.
func (h runActions) notOpen(i *engine.Info, name string) error {
	for k := range i.Steps {
		if s := &i.Steps[k]; s.Name == name {
			if a, ok := control.AnswerOf(s); ok && a.By != "" {
				return control.NewError(control.CodeState, a.By+" has answered this question already: "+a.Choice, "")
			}
		}
	}
	return control.NewError(control.CodeState, "this question is not open", "")
}

// answerQuestion fills in the form for an answer.
func (h runActions) answerQuestion(r *http.Request, q *Question) error {
	s, choice, err := h.chosenAnswer(r)
	if err != nil {
		return err
	}
	caller := CallerOf(r.Context())
	if why := control.MayAnswer(s.Question, cmp.Or(caller.Name, unnamed), caller.ReadOnly); why != "" {
		return control.NewError(control.CodeForbidden, why, "")
	}
	words := r.PostFormValue("words")
	q.Title, q.Text = "Answer “"+h.Redact(choice)+"”?", h.Redact(s.Question.Text)
	q.Button, q.Danger, q.Words = h.Redact(choice), choice == engine.Reject, &words
	q.Fields = []Fact{{"question", s.Name}, {"choice", r.FormValue("choice")}}
	return nil
}

// answer stores the answer of a form.
func (h runActions) answer(r *http.Request, id string) error {
	s, choice, err := h.chosenAnswer(r)
	if err != nil {
		return err
	}
	words := strings.TrimSpace(strings.ReplaceAll(r.PostForm.Get("words"), "\r\n", "\n"))
	by := cmp.Or(CallerOf(r.Context()).Name, unnamed)
	err = h.control.Runs.Answer(r.Context(), id, s.Name, control.Reply{Choice: choice, Words: words}, by)
	if e, ok := errors.AsType[*control.Error](err); ok && e.Field == "words" {
		return &inputError{e.Message, ""}
	}
	return err
}
