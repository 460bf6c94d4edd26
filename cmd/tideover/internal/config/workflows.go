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

// alarmSuffix ends the names of the workflows that are made of on-give-up.
const alarmSuffix = ".on-give-up"

const (
	alarmPattern    = `\.on-give-up$`
	reservedPattern = `^session\.|^notify\.|^nip90\.|` + alarmPattern // of names that workflows can't have
)

// draft is a workflow while it is read.
type draft struct {
	*steps.Workflow
	env     []template.NamedText
	inherit guard.Inherit
	steps   []*stepDraft
	alarm   *stepDraft
	maxLost int // of the steps that have none of their own
}

func newDraft(name string) *draft { return &draft{Workflow: &steps.Workflow{Name: name}} }

// stepDraft is a step while it is read, with what can only be checked when all
// steps are known.
type stepDraft struct {
	*steps.Step
	at     place
	fields template.Fields // that its templates may use
	needs  []place
	texts  []usedText

	notify []string       // of on-give-up, which is then nothing else
	job    *nip90.JobKind // whose step it is; nil for all others

	ownMaxLost bool // it does not have the workflow's
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
}

// section reads the section workflows of the configuration.
func (r *workflowReader) section(at place) {
	checkReserved(at)
	checkPrefixes(at)
	at.EachName("workflow", func(name string, at place) {
		r.names = append(r.names, name)
		r.workflows[name] = r.workflow(name, at)
	})
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

// inheritInSteps adds the variables that all commands of the workflow get.
func (r *workflowReader) inheritInSteps(d *draft) {
	all := slices.Clone(d.steps)
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

// workflowKeys has env first: it is merged into the steps.
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
			"How many attempts of a step in a row may be lost because the server died, and are repeated; 0 repeats none. At most 9999."),
		strictyaml.Func("input", "", func() *jsonschema.Schema { return &jsonschema.Schema{} }, func(at place) {
			d.DefaultInput = readInput(r.Reader, at, "input")
			at.Record(jsonText(at.Node.Plain()))
		}, "Default input: any value. Its texts are templates with .run, .schedule and .today. The input of a start overrides it, key by key if both are maps."),
		strictyaml.Func("env", "", envSchema, func(at place) { d.env = r.Map(at, steps.EnvFields, wrongVariable, nil) },
			"Environment variables of all command steps."),
		strictyaml.Field(&d.inherit, "env-inherit", "", inheritSchema, readInherit,
			inheritDoc+"For all command steps."),
		strictyaml.Required(strictyaml.Func("steps", "", r.stepsSchema, func(at place) {
			ok := at.Each(func(at place) { d.steps = append(d.steps, r.step(at, d.env)) })
			if ok && len(d.steps) == 0 {
				at.Bad("the list of steps is empty; add at least one")
			}
		}, "The steps. Steps run at the same time unless one needs another.")),
		strictyaml.Func("on-give-up", "", oneOf(r.alarmKeys(r.newStep("", place{})), "run", "http", "notify"), func(at place) {
			d.alarm = r.alarm(at, d.env)
		}, "Command or request that runs once when a run gives up. Its templates may use the results of all steps."),
	}
}

func (r *workflowReader) stepsSchema() *jsonschema.Schema {
	step := oneOf(r.stepKeys(r.newStep("", place{})), "run", "http")()
	return &jsonschema.Schema{Type: "array", MinItems: new(1), Items: step}
}

const (
	defaultMaxLost = 3 // the engine's, as a test checks
	mostLost       = 9999
)

// readMaxLost reads how many lost attempts in a row are made again.
func readMaxLost(at place) int {
	n := strictyaml.ReadInt(at, 0)
	if n > mostLost {
		at.Bad("%d is more than %d", n, mostLost)
	}
	return n
}

func maxLostSchema() *jsonschema.Schema {
	s := strictyaml.IntSchema(0)()
	s.Maximum, s.Pattern = new(float64(mostLost)), `^(\+?0*[0-9]{1,4}|-0+)$`
	return s
}

// checkGraph checks what the steps say of each other: ids, needs, cycles, and that
// no template uses a step that may not have ended.
func checkGraph(d *draft) {
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
		checkUses(s, ids)
	}
	if d.alarm != nil {
		d.alarm.After = slices.Sorted(slices.Values(ids))
		checkUses(d.alarm, ids)
	}
}

// checkNeeds checks the ids that a step needs, and drops those that are wrong.
func checkNeeds(s *stepDraft, byID map[string]*stepDraft, ids []string) {
	s.Needs = nil
	for _, at := range s.needs {
		id := at.Node.Text
		switch {
		case id == s.ID:
			at.Bad("step %q needs itself", id)
		case byID[id] == nil:
			at.Bad("%s", noStep(id, ids))
		case slices.Contains(s.Needs, id):
			at.Bad("%q is listed twice", id)
		default:
			s.Needs = append(s.Needs, id)
		}
	}
}

func noStep(id string, ids []string) string {
	return strictyaml.UnknownName("step", id, ids)
}

// findCycles reports steps that wait for each other, each cycle once.
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

// closure returns the steps that have ended before the step starts, sorted.
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

// checkUses checks that templates only use results that are there.
func checkUses(s *stepDraft, ids []string) {
	for _, u := range s.texts {
		for _, id := range u.text.Steps() {
			switch {
			case slices.Contains(s.After, id):
			case id == s.ID:
				u.at.Bad("template: step %q can't use its own result", id)
			case !slices.Contains(ids, id):
				u.at.Bad("template: %s", noStep(id, ids))
			default:
				u.at.Bad("template: step %q may not have ended yet; add it to needs", id)
			}
		}
	}
}

// readInput reads a part of a default input, whose texts are templates.
func readInput(r template.Reader, at place, name string) any {
	switch n := at.Node; n.Kind {
	case strictyaml.KindMap:
		m := map[string]any{}
		at.CheckKeys(func(string) (string, bool) { return "", true })
		for _, p := range n.Pairs {
			m[p.Key.Text] = readInput(r, at.Child(p.Key.Text, p.Val), p.Key.Text)
		}
		return m
	case strictyaml.KindList:
		list := []any{}
		for i := range n.Items {
			list = append(list, readInput(r, at.Index(i), name))
		}
		return list
	case strictyaml.KindText:
		t, _ := r.Text(at, name, template.WithoutRefs, steps.InputFields)
		return t
	default:
		return n.Value
	}
}
