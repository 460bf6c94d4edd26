package config

import (
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/nip90"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

// alarmSuffix ends the names of the workflows that are made from on-give-up.
const alarmSuffix = ".on-give-up"

const (
	alarmPattern    = `\.on-give-up$`
	reservedPattern = `^session\.|^notify\.|^nip90\.|` + alarmPattern // names that a workflow of the file can't have
)

// draft is a workflow while it is read.
type draft struct {
	*steps.Workflow
	env     []template.NamedText
	inherit guard.Inherit
	steps   []*stepDraft
	alarm   *stepDraft
	maxLost int // for steps without their own max-lost
}

func newDraft(name string) *draft { return &draft{Workflow: &steps.Workflow{Name: name}} }

// stepDraft is a step while it is read, with the data for checks that need all steps.
type stepDraft struct {
	*steps.Step
	at     place
	fields template.Fields // fields that its templates may use
	needs  []place
	texts  []usedText

	notify []string       // notifiers of on-give-up; then it has neither a command nor a request
	job    *nip90.JobKind // the kind of jobs that the step runs; nil for a step of a workflow

	ownMaxLost bool // the step sets max-lost itself

	kinds   []string   // keys of which the step must have exactly one
	child   place      // value of the key workflow
	undoAt  place      // value of the key undo
	undoing *stepDraft // its undo; nil for none
	undoes  string     // of an undo: the id of the step that it undoes
}

// usedText is a template and its place.
type usedText struct {
	at   place
	text *template.Text
}

// workflowReader reads the section workflows.
type workflowReader struct {
	*sharedReader
	policies  *policyReader
	providers *providerReader
	notifiers *notifierReader
	workflows map[string]*steps.Workflow
	names     []string // in the order of the file
	drafts    map[string]*draft
	answerers []place // who in approve; see crossCheckUsers
}

// section reads the section workflows into r.workflows.
func (r *workflowReader) section(at place) {
	checkReserved(at)
	checkPrefixes(at)
	at.EachName("workflow", func(name string, at place) {
		r.names = append(r.names, name)
		r.workflows[name] = r.workflow(name, at)
	})
	r.checkChildren()
}

func (r *workflowReader) workflow(name string, at place) *steps.Workflow {
	d := newDraft(name)
	strictyaml.Object(at, r.workflowKeys(d))
	for _, s := range d.steps {
		if !s.ownMaxLost {
			s.MaxLost = d.maxLost
		}
		d.Steps = append(d.Steps, s.Step)
	}
	r.inheritInSteps(d)
	if d.alarm != nil {
		if d.Notify = d.alarm.notify; d.Notify == nil {
			d.OnGiveUp = d.alarm.Step
		}
	}
	checkGraph(d)
	r.drafts[name] = d
	return d.Workflow
}

// inheritInSteps adds the workflow's env-inherit to its command steps, and keeps their
// commands for crossCheckCommands.
func (r *workflowReader) inheritInSteps(d *draft) {
	all := slices.Clone(d.steps)
	for _, s := range d.steps {
		if s.undoing != nil {
			all = append(all, s.undoing)
		}
	}
	if d.alarm != nil {
		all = append(all, d.alarm)
	}
	for _, s := range all {
		if !s.IsHTTP() {
			s.Inherit = d.inherit.Plus(s.Inherit)
			r.addCommand(s)
		}
	}
}

// workflowKeys are the keys of a workflow. env comes before steps, because it is merged
// into them.
func (r *workflowReader) workflowKeys(d *draft) []key {
	return []key{
		strictyaml.Field(&d.Description, "description", "", strictyaml.ScalarSchema, strictyaml.ReadText,
			"Purpose of the workflow, shown on the page."),
		strictyaml.Field(&d.Schedule, "schedule", "", scheduleSchema, readSchedule,
			"When to start runs automatically: a cron expression such as 0 3 * * *, optionally after TZ=Europe/Berlin, or a map."),
		strictyaml.Duration(&d.Timeout, "timeout", "", "Time limit for a whole run."),
		strictyaml.Int(&d.Concurrency, "concurrency", "0", 0,
			"Most runs of the workflow at the same time; 0 for no limit except server.concurrency."),
		strictyaml.Field(&d.maxLost, "max-lost", strconv.Itoa(defaultMaxLost), maxLostSchema, readMaxLost,
			"Attempts of a step in a row that may be lost because the server died, and are repeated; 0 repeats none. At most 9999."),
		strictyaml.Func("input", "", func() *jsonschema.Schema { return &jsonschema.Schema{} }, func(at place) {
			d.DefaultInput = readInput(r.Reader, at, "input")
			at.Record(jsonText(at.Node.Plain()))
		}, "Default input: any value. Its texts are templates with .run, .schedule and .today. The input of a start overrides it, key by key if both are maps."),
		strictyaml.Func("env", "", envSchema, func(at place) { d.env = r.Map(at, steps.EnvFields, wrongVariable, nil) },
			"Environment variables of all command steps."),
		strictyaml.Field(&d.inherit, "env-inherit", "", inheritSchema, readInherit,
			inheritDoc+" For all command steps."),
		strictyaml.Required(strictyaml.Func("steps", "", r.stepsSchema, func(at place) {
			at.Each(func(at place) { d.steps = append(d.steps, r.step(at, d.env)) })
			refuseEmpty(at, "the list of steps is empty; add at least one")
		}, "The steps. Steps run at the same time unless one needs another.")),
		strictyaml.Func("on-give-up", "", oneOf(r.alarmKeys(r.newStep("", place{})), "run", "http", "notify"), func(at place) {
			d.alarm = r.alarm(at, d.env)
		}, "Command or request that runs once when a run gives up. Its templates may use the results of all steps."),
	}
}

func (r *workflowReader) stepsSchema() *jsonschema.Schema {
	step := oneOf(r.stepKeys(r.newStep("", place{})), stepKinds...)()
	return &jsonschema.Schema{Type: "array", MinItems: new(1), Items: step}
}

const (
	defaultMaxLost = 3 // the engine has the same default; a test checks that
	mostLost       = 9999
)

// readMaxLost reads max-lost: how many attempts in a row are repeated if each is lost
// because the server died.
func readMaxLost(at place) int { return strictyaml.ReadIntUpTo(at, 0, mostLost) }

func maxLostSchema() *jsonschema.Schema {
	s := strictyaml.IntSchema(0)()
	s.Maximum, s.Pattern = new(float64(mostLost)), `^(\+?0*[0-9]{1,4}|-0+)$`
	return s
}

// checkGraph checks how the steps refer to each other: that ids are unique, that needs
// exist and have no cycle, and that no template uses a step that may not have ended.
func checkGraph(d *draft) {
	if len(d.steps) > maxSteps {
		d.steps[maxSteps].at.Bad("this is step %d of the workflow, at most %d; let child workflows do a part of the steps", maxSteps+1, maxSteps)
		return
	}
	byID := map[string]*stepDraft{}
	var ids []string
	for _, s := range d.steps {
		if first := byID[s.ID]; first != nil {
			s.at.Child("id", s.at.Node.Get("id")).Bad("the id %q is already used at line %d", s.ID, first.at.Node.Line)
			continue
		}
		if s.ID != "" {
			byID[s.ID] = s
			ids = append(ids, s.ID)
		}
	}
	for _, s := range d.steps {
		checkNeeds(s, byID, ids)
	}
	if findCycles(d, byID) {
		return
	}
	for _, s := range d.steps {
		s.After = closure(s.ID, byID)
		checkUses(s, byID, ids)
		if s.undoing != nil {
			s.undoing.After = s.After
			checkUses(s.undoing, byID, ids)
		}
	}
	if d.alarm != nil {
		d.alarm.After = slices.Sorted(slices.Values(ids))
		checkUses(d.alarm, byID, ids)
	}
}

// checkNeeds sets s.Needs to the valid ids in needs, and records a problem for the others.
func checkNeeds(s *stepDraft, byID map[string]*stepDraft, ids []string) {
	s.Needs = nil
	for _, at := range s.needs {
		id := at.Node.Text
		switch {
		case id == s.ID:
			at.Bad("step %q needs itself", id)
		case byID[id] == nil:
			at.Bad("%s", strictyaml.UnknownName("step", id, ids))
		case slices.Contains(s.Needs, id):
			at.Bad("%q is listed twice", id)
		default:
			s.Needs = append(s.Needs, id)
		}
	}
}

// findCycles records a problem for each cycle of steps that need each other. It reports
// whether there is one.
func findCycles(d *draft, byID map[string]*stepDraft) (found bool) {
	const visiting, done = 1, 2
	state := map[string]int{}
	var way []string
	var visit func(s *stepDraft)
	visit = func(s *stepDraft) {
		state[s.ID] = visiting
		way = append(way, s.ID)
		for _, at := range s.needs {
			switch next := byID[at.Node.Text]; {
			case next == nil || next == s || state[next.ID] == done:
			case state[next.ID] == visiting:
				found = true
				circle := append(slices.Clone(way[slices.Index(way, next.ID):]), next.ID)
				at.Bad("steps need each other: %s", strings.Join(circle, " → "))
			default:
				visit(next)
			}
		}
		way = way[:len(way)-1]
		state[s.ID] = done
	}
	for _, s := range d.steps {
		if s.ID != "" && state[s.ID] == 0 {
			visit(s)
		}
	}
	return found
}

// closure returns the sorted ids of all steps that the step needs, directly or indirectly.
func closure(id string, byID map[string]*stepDraft) (all []string) {
	seen := map[string]bool{id: true}
	var visit func(id string)
	visit = func(id string) {
		s := byID[id]
		if s == nil {
			return
		}
		for _, n := range s.Needs {
			if !seen[n] {
				seen[n] = true
				all = append(all, n)
				visit(n)
			}
		}
	}
	visit(id)
	slices.Sort(all)
	return all
}

// checkUses refuses templates that use the result of a step that may not have ended.
func checkUses(s *stepDraft, byID map[string]*stepDraft, ids []string) {
	for _, u := range s.texts {
		for _, use := range u.text.Uses() {
			switch id := use.ID; {
			case slices.Contains(s.After, id):
				if why := fieldProblem(byID[id], use); why != "" {
					u.at.Bad("template: %s", why)
				}
			case id == s.undoes && id != "":
				u.at.Bad("template: the undo of step %q gets the result of the step as .result", id)
			case id == s.ID:
				u.at.Bad("template: step %q can't use its own result", id)
			case !slices.Contains(ids, id):
				u.at.Bad("template: %s", strictyaml.UnknownName("step", id, ids))
			default:
				u.at.Bad("template: step %q may not have ended yet; add it to needs", id)
			}
		}
	}
}

// readInput reads a default input. It parses each text as a template. name is the key of the value.
func readInput(r template.Reader, at place, name string) any {
	return readTree(at, name, func(at place, name string) *template.Text {
		t, _ := r.Text(at, name, template.WithoutRefs, steps.InputFields)
		return t
	})
}

// readTree reads any value. It calls text for each text; name is the key of the value.
func readTree(at place, name string, text func(at place, name string) *template.Text) any {
	switch n := at.Node; n.Kind {
	case strictyaml.KindMap:
		m := map[string]any{}
		at.CheckKeys(func(string) (string, bool) { return "", true })
		for _, p := range n.Pairs {
			m[p.Key.Text] = readTree(at.Child(p.Key.Text, p.Val), p.Key.Text, text)
		}
		return m
	case strictyaml.KindList:
		list := []any{}
		for i := range n.Items {
			list = append(list, readTree(at.Index(i), name, text))
		}
		return list
	case strictyaml.KindText:
		return text(at, name)
	default:
		return n.Value
	}
}
