package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// The limits of the forms. The engine has the same, and as many items as [steps.MaxItems]; a test
// checks that.
const (
	maxSteps    = 1000 // of a workflow
	maxParallel = 1000
	maxQuestion = 4 << 10
	maxChoices  = 20
	maxChoice   = 64
)

// stepKinds are the keys of a step of which it must have exactly one.
var stepKinds = []string{"run", "http", "sleep", "wait-for", "approve", "workflow"}

// actionKinds are those of on-give-up and undo.
var actionKinds = []string{"run", "http"}

// enumerate returns the names with commas, and with "and" before the last one.
func enumerate(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}

// formKeys are the keys of a step that make its workflow a flow. for-each comes first, because the
// templates of the other keys may use .item and .index then.
func (r *workflowReader) formKeys(d *stepDraft) []key {
	return []key{
		strictyaml.Func("for-each", "", forEachSchema, func(at place) { r.forEach(at, d) },
			"List for whose items the step is executed: a list, or one template. Templates of the step use .item and .index. The result is a list."),
		strictyaml.IntUpTo(&d.Parallel, "parallel", "", maxParallel, `[1-9][0-9]{0,2}|1000`,
			"Most items of for-each at the same time. Default: 16."),
		strictyaml.Func("when", "", strictyaml.ScalarSchema, func(at place) { r.when(at, d) },
			"Condition, a template: false, 0, empty, null or the text false skips the step. A skipped step counts as succeeded; its output is null."),
		strictyaml.Func("sleep", "", strictyaml.ScalarSchema, func(at place) { r.sleep(at, d) },
			"How long the step waits, such as 10m or 3d; a template."),
		strictyaml.Func("wait-for", "", func() *jsonschema.Schema {
			return anyOf(strictyaml.PatternSchema(eventPattern)(), strictyaml.Describe(waitKeys(new(steps.WaitFor))))
		}, func(at place) { waitFor(at, d) },
			"Name of the signal that the step waits for, or a map. The payload is the output of the step."),
		strictyaml.Func("approve", "", func() *jsonschema.Schema {
			return anyOf(strictyaml.TextSchema(), strictyaml.Describe(r.approveKeys(d, new(steps.Approve))))
		}, func(at place) { r.approve(at, d) },
			"Question to a person, or a map. The run waits for the answer, and fails if it is reject."),
		strictyaml.Func("workflow", "", strictyaml.NameSchema, func(at place) {
			d.Workflow, d.child = strictyaml.ReadName(at, "workflow"), at
		}, "Workflow of this file that the step starts as a child; its output is the output of the step."),
		strictyaml.Func("input", "", func() *jsonschema.Schema { return &jsonschema.Schema{} }, func(at place) {
			d.Input = r.tree(at, d, "input", d.flowFields())
			at.Record(jsonText(at.Node.Plain()))
		}, "Input of the child: any value, whose texts are templates. A text that is one template keeps its value, such as a list."),
		strictyaml.Func("undo", "", func() *jsonschema.Schema {
			return oneOf(r.undoKeys(r.newStep("", place{})), actionKinds...)()
		}, func(at place) { d.undoAt = at },
			"Command or request that undoes the step if the run later fails, times out or is canceled. Its templates also have .result."),
	}
}

// undoKeys are the keys of an undo.
func (r *workflowReader) undoKeys(d *stepDraft) []key {
	own := slices.DeleteFunc(ownStepKeys(d), func(k key) bool {
		return !slices.Contains([]string{"retry-exit", "permanent-exit", "account"}, k.Name)
	})
	return append(own, r.actionKeys(d)...)
}

// flowFields are the fields of the templates that say what a flow does.
func (d *stepDraft) flowFields() template.Fields {
	f := steps.FlowFields
	if d.ForEach != nil {
		f.First = slices.Concat(f.First, itemFields)
	}
	return f
}

// itemFields are the fields of the templates of a step with for-each, undoFields those of an undo.
var (
	itemFields = []string{"item", "index"}
	undoFields = []string{"result"}
)

func forEachSchema() *jsonschema.Schema {
	return anyOf(strictyaml.TextSchema(), &jsonschema.Schema{Type: "array", MinItems: new(1), MaxItems: new(steps.MaxItems)})
}

// forEach reads the list of a loop.
func (r *workflowReader) forEach(at place, d *stepDraft) {
	switch {
	case at.IsList() && len(at.Node.Items) == 0:
		at.Bad("the list is empty, so the step would do nothing; add an item")
	case at.IsList() && len(at.Node.Items) > steps.MaxItems:
		at.Bad("%d items are too many, at most %d; let child workflows do a part of the items", len(at.Node.Items), steps.MaxItems)
	case at.IsList():
		d.ForEach = r.tree(at, d, "for-each", steps.FlowFields)
		at.Record(jsonText(at.Node.Plain()))
	case at.Node.Kind != strictyaml.KindText:
		at.Bad("%v, where a list is expected, or a template such as {{ .input.hosts }}", at.Node.Kind)
	default:
		t, ok := r.Text(at, "for-each", template.WithoutRefs, steps.FlowFields)
		switch {
		case !ok:
		case !t.IsValue():
			at.Bad("%q is not one template whose value is a list, such as {{ .input.hosts }} or {{ .steps.list.output }}", textfmt.Clip(t.Source(), strictyaml.MaxQuoted))
		default:
			d.addText(at, t)
			d.ForEach = t
			at.Record(t.Source())
		}
	}
	if d.ForEach == nil {
		d.ForEach = []any{} // it has a problem; templates of the step may use .item all the same
	}
	d.fields.First = slices.Concat(d.fields.First, itemFields)
}

// tree reads a JSON value whose texts are templates with these fields.
func (r *workflowReader) tree(at place, d *stepDraft, name string, fields template.Fields) any {
	return readTree(at, name, func(at place, name string) *template.Text {
		t, ok := r.Text(at, name, template.WithoutRefs, fields)
		if ok {
			d.addText(at, t)
		}
		return t
	})
}

// when reads a condition.
func (r *workflowReader) when(at place, d *stepDraft) {
	t, ok := r.Text(at, "when", template.WithoutRefs, steps.FlowFields)
	switch {
	case !ok:
	case t.IsConstant():
		at.Bad("%q is always the same; want a template such as {{ eq .input.target \"production\" }}", textfmt.Clip(t.Source(), strictyaml.MaxQuoted))
	default:
		d.addText(at, t)
		d.When = t
		at.Record(t.Source())
	}
}

// sleep reads how long a step waits.
func (r *workflowReader) sleep(at place, d *stepDraft) {
	t, ok := r.Text(at, "sleep", template.WithoutRefs, steps.FlowFields)
	if !ok {
		return
	}
	if t.IsConstant() {
		wait, err := retry.ParseDuration(t.Literal())
		switch {
		case err != nil:
			at.Bad("%v", err)
		case wait <= 0:
			at.Bad("%q: must be above zero", t.Literal())
		}
	}
	d.addText(at, t)
	d.Sleep = t
	at.Record(t.Source())
}

const eventPattern = `^[A-Za-z0-9_.-]{1,128}$`

var eventName = lazyregexp.New(eventPattern)

func readEvent(at place) string {
	return strictyaml.ReadParsed(at, strictyaml.Matching(eventName, "is not the name of a signal; use letters, digits, '-', '_' and '.'"))
}

// waitFor reads the signal that a step waits for.
func waitFor(at place, d *stepDraft) {
	d.WaitFor = new(steps.WaitFor)
	if !at.IsMap() {
		d.WaitFor.Event = readEvent(at)
		return
	}
	found, _ := strictyaml.Object(at, waitKeys(d.WaitFor))
	if here, ok := found["on-timeout"]; ok && found["timeout"].Node == nil {
		here.Bad("requires timeout, which says when it applies")
	}
}

var timeoutWords = []string{"fail", "continue"}

func waitKeys(w *steps.WaitFor) []key {
	return []key{
		strictyaml.Required(strictyaml.Field(&w.Event, "event", "", strictyaml.PatternSchema(eventPattern), readEvent,
			"Name of the signal.")),
		strictyaml.Duration(&w.Timeout, "timeout", "", "How long to wait. Default: without a limit."),
		strictyaml.Func("on-timeout", "fail", strictyaml.WordSchema(timeoutWords...), func(at place) {
			w.Continue = strictyaml.ReadWord(at, timeoutWords...) == "continue"
		}, "If no signal comes in time: the run fails, or it continues and .timed_out of the step is true."),
	}
}

// approve reads a question to a person.
func (r *workflowReader) approve(at place, d *stepDraft) {
	a := new(steps.Approve)
	d.Approve = a
	if !at.IsMap() {
		a.Question = r.question(at, d)
		return
	}
	found, _ := strictyaml.Object(at, r.approveKeys(d, a))
	choices := a.Choices
	if len(choices) == 0 {
		choices = []string{engine.Approve, engine.Reject}
	}
	if here, ok := found["default"]; ok {
		switch {
		case found["timeout"].Node == nil:
			here.Bad("requires timeout, which says when it applies")
		case !slices.Contains(choices, a.Default):
			here.Bad("%q is not one of the choices %s", a.Default, strings.Join(choices, ", "))
		}
	}
	if here, ok := found["on-reject"]; ok && !slices.Contains(choices, engine.Reject) {
		here.Bad("has no effect: none of the choices is %s", engine.Reject)
	}
}

func (r *workflowReader) approveKeys(d *stepDraft, a *steps.Approve) []key {
	return []key{
		strictyaml.Required(strictyaml.Func("question", "", strictyaml.TextSchema, func(at place) { a.Question = r.question(at, d) },
			"What is asked, a template of at most 4 KiB.")),
		strictyaml.Field(&a.Choices, "choices", "", choicesSchema, readChoices,
			"Possible answers, at most 20. Default: approve and reject."),
		strictyaml.Field(&a.Who, "who", "", whoSchema, r.readWho,
			"Who may answer: names of server.users, or cli:NAME for a user of the machine. Default: everyone who may change runs."),
		strictyaml.Duration(&a.Timeout, "timeout", "", "How long to wait for an answer. Default: without a limit."),
		strictyaml.Field(&a.Default, "default", "", strictyaml.TextSchema, strictyaml.ReadText,
			"The answer if none comes in time. Default: none; the run fails."),
		strictyaml.Func("on-reject", "fail", strictyaml.WordSchema(timeoutWords...), func(at place) {
			a.Continue = strictyaml.ReadWord(at, timeoutWords...) == "continue"
		}, "What happens if the answer is reject: the run fails, or it continues."),
	}
}

func (r *workflowReader) question(at place, d *stepDraft) *template.Text {
	t, ok := r.Text(at, "question", template.WithoutRefs, steps.FlowFields)
	switch {
	case !ok:
		return nil
	case strings.TrimSpace(t.Source()) == "":
		at.Bad("the question is empty")
	case t.IsConstant() && len(t.Literal()) > maxQuestion:
		at.Bad("the question has %d bytes, at most %d are possible", len(t.Literal()), maxQuestion)
	}
	d.addText(at, t)
	at.Record(t.Source())
	return t
}

func choicesSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "array", MinItems: new(2), MaxItems: new(maxChoices), UniqueItems: true, Items: &jsonschema.Schema{Type: "string", MinLength: new(1), MaxLength: new(maxChoice)}}
}

func readChoices(at place) []string {
	if at.IsList() {
		switch n := len(at.Node.Items); {
		case n < 2:
			at.Bad("want at least two choices")
		case n > maxChoices:
			at.Bad("%d choices, at most %d are possible", n, maxChoices)
		}
	}
	list := readDistinct(at, func(at place, text string) (string, bool) {
		if strings.TrimSpace(text) == "" || len(text) > maxChoice || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
			at.Bad("%q must have 1 to %d bytes without control characters", textfmt.Clip(text, strictyaml.MaxQuoted), maxChoice)
			return "", false
		}
		return text, true
	})
	at.Record(jsonText(list))
	return list
}

// whoPattern matches a user of the file, or of the machine.
const whoPattern = `^(cli:.+|[a-z0-9][a-z0-9_.-]{0,62})$`

var whoForm = lazyregexp.New(whoPattern)

func whoSchema() *jsonschema.Schema {
	s := patternsSchema(whoPattern)()
	s.MinItems = new(1)
	return s
}

// readWho reads the names of those who may answer, and keeps them for crossCheckUsers.
func (r *workflowReader) readWho(at place) []string {
	refuseEmpty(at, "the list is empty, so nobody could answer; add a user, or leave it out")
	list := readDistinct(at, func(at place, text string) (string, bool) {
		if !whoForm.MatchString(text) {
			at.Bad("%q is neither the name of a user nor cli:NAME", text)
			return "", false
		}
		r.answerers = append(r.answerers, at)
		return text, true
	})
	at.Record(jsonText(list))
	return list
}

// crossCheckUsers refuses those in who that can't answer a question.
func crossCheckUsers(answerers []place, users []User) {
	var names []string
	for _, u := range users {
		names = append(names, u.Name)
	}
	for _, at := range answerers {
		name := at.Node.Text
		i := slices.Index(names, name)
		switch {
		case strings.HasPrefix(name, "cli:"):
		case i < 0 && len(names) == 0:
			at.Bad("unknown user %q; the file has no server.users. A user of this machine is written as cli:%s", name, name)
		case i < 0:
			at.Bad("%s", strictyaml.UnknownName("user", name, names))
		case users[i].ReadOnly:
			at.Bad("user %q is read-only, and can't answer", name)
		}
	}
}

// checkForm checks how the keys of a step fit together. kind is the one of stepKinds that it has.
func (r *workflowReader) checkForm(d *stepDraft, found map[string]place, kind string, env []template.NamedText) {
	isAction := slices.Contains(actionKinds, kind)
	if !isAction {
		d.Dir = ""
		for _, name := range actionOnly {
			if here, ok := found[name]; ok {
				here.Bad("requires run or http; this step is %s", kindNames[kind])
			}
		}
	}
	if here, ok := found["input"]; ok && kind != "workflow" {
		here.Bad("requires %s; this step is %s", keyNeeds["input"], kindNames[kind])
	}
	if here, ok := found["for-each"]; ok && !isAction && kind != "workflow" {
		here.Bad("requires %s; this step is %s", keyNeeds["for-each"], kindNames[kind])
	}
	if here, ok := found["parallel"]; ok && found["for-each"].Node == nil {
		here.Bad("requires %s, whose items it limits", keyNeeds["parallel"])
	}
	if _, ok := found["undo"]; ok && isAction {
		r.undo(d, env)
	}
}

// keyNeeds says what keys require, except those of actionOnly and commandOnly.
var keyNeeds = map[string]string{"input": "workflow", "for-each": "run, http or workflow", "parallel": "for-each"}

// commandOnly are the keys that only commands have.
var commandOnly = []string{"dir", "env", "env-inherit", "stdin", "retry-exit", "permanent-exit", "account"}

// actionOnly are the keys that only commands and requests have.
var actionOnly = []string{
	"dir", "env", "env-inherit", "stdin", "policy", "output-limit", "retry-exit", "permanent-exit", "account", "concurrency", "max-lost", "undo",
}

// kindNames names the kinds of steps in messages.
var kindNames = map[string]string{
	"run": "a command", "http": "an HTTP request", "sleep": "a sleep", "wait-for": "a wait for a signal", "approve": "a question", "workflow": "a child workflow",
}

// undo reads the undo of a step.
func (r *workflowReader) undo(d *stepDraft, env []template.NamedText) {
	u := r.newStep(d.ID+".undo", d.undoAt)
	u.kinds = actionKinds
	u.fields.First = slices.Concat(d.fields.First, undoFields)
	u.undoes = d.ID
	r.readStep(u, env, r.undoKeys(u))
	d.undoing, d.Undo = u, u.Step
}

// checkChildren checks the workflows that steps start: that they exist, and that a workflow does
// not start itself without end.
func (r *workflowReader) checkChildren() {
	for _, name := range r.names {
		for _, s := range r.drafts[name].steps {
			if s.Workflow != "" && r.workflows[s.Workflow] == nil {
				s.child.Bad("%s", strictyaml.UnknownName("workflow", s.Workflow, r.names))
			}
		}
	}
	always := func(s *stepDraft) bool { return s.When == nil && s.ForEach == nil }
	r.findLoops(always, func(at place, loop []string) {
		at.Bad("workflows start each other without end: %s; add a condition with when", strings.Join(loop, " → "))
	})
	r.findLoops(func(*stepDraft) bool { return true }, func(at place, loop []string) {
		for _, name := range loop {
			if n := r.workflows[name].Concurrency; n > 0 && !at.Document().HasProblem(at.Path()) {
				at.Bad("workflows start each other: %s, and %s has concurrency: %d: a run would wait for a child that waits for the place of the run; remove concurrency", strings.Join(loop, " → "), name, n)
			}
		}
	})
}

// findLoops calls found for each loop of workflows that start each other by steps for which follow
// returns true. at is the step that closes the loop.
func (r *workflowReader) findLoops(follow func(*stepDraft) bool, found func(at place, loop []string)) {
	const visiting, done = 1, 2
	state := map[string]int{}
	var way []string
	var visit func(name string)
	visit = func(name string) {
		state[name] = visiting
		way = append(way, name)
		for _, s := range r.drafts[name].steps {
			next := s.Workflow
			switch {
			case next == "" || r.drafts[next] == nil || !follow(s) || state[next] == done:
			case state[next] == visiting:
				found(s.child, append(slices.Clone(way[slices.Index(way, next):]), next))
			default:
				visit(next)
			}
		}
		way = way[:len(way)-1]
		state[name] = done
	}
	for _, name := range r.names {
		if state[name] == 0 {
			visit(name)
		}
	}
}

// fieldProblem returns what is wrong with the use of a step's result in a template, or "".
func fieldProblem(used *stepDraft, u template.StepUse) string {
	fields := used.ResultFields()
	switch {
	case u.Field == "" || used.Kind() == "":
		return ""
	case used.ForEach != nil:
		return fmt.Sprintf("the result of step %q is a list, because the step has for-each; write {{ range .steps.%s }}{{ .%s }}{{ end }}", u.ID, u.ID, u.Field)
	case slices.Contains(fields, u.Field):
		return ""
	case u.Field == "skipped":
		return fmt.Sprintf("step %q is never skipped; it has no when", u.ID)
	}
	return fmt.Sprintf("step %q has no %q; want %s", u.ID, u.Field, strings.Join(fields, ", "))
}
