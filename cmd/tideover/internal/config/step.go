package config

import (
	"cmp"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// step reads an item of a workflow's steps.
func (r *workflowReader) step(at place, env []template.NamedText) stepDraft {
	return readStep(r, at, env, stepKeys, "")
}

// alarm reads what runs when a run gives up.
func (r *workflowReader) alarm(at place, env []template.NamedText) stepDraft {
	d := readStep(r, at, env, alarmKeys, "on-give-up")
	d.GiveUp = true
	return d
}

func readStep(r *workflowReader, at place, env []template.NamedText, keys []key[*workflowReader, stepDraft], id string) stepDraft {
	d := stepDraft{Step: &steps.Step{ID: id, Base: r.Dir, Dir: r.Dir, MaxLost: defaultMaxLost}, at: at, fields: steps.StepFields}
	found, ok := strictyaml.Object(r, at, keys, &d)
	_, run := found["run"]
	_, http := found["http"]
	if here, notify := found["notify"]; notify {
		if run || http || len(found) > 1 {
			here.Bad("can't be combined with other keys; the notifier defines what is sent and how")
		}
		return d
	}
	if run == http {
		if ok { // otherwise the key that is wrong may be meant for it
			at.Bad("want exactly one of run and http")
		}
		return d
	}
	d.Policy = r.policies.ofStep(at, found, run)
	checkAction(&d, found, env)
	return d
}

// checkAction checks what goes with a command and what with a request.
func checkAction(d *stepDraft, found map[string]place, env []template.NamedText) {
	if _, http := found["http"]; http {
		for _, name := range []string{"dir", "env", "env-inherit", "stdin", "retry-exit", "permanent-exit", "account"} {
			if here, ok := found[name]; ok {
				here.Bad("requires run; this step is an HTTP request")
			}
		}
		d.Dir, d.Texts.Env = "", nil
		return
	}
	if code, ok := d.RetryExit.Overlap(d.PermanentExit); ok {
		found["permanent-exit"].Bad("%d is also in retry-exit", code)
	}
	d.Texts.Env = mergeEnv(env, d.Texts.Env)
}

// mergeEnv returns the workflow's variables and the step's over them.
func mergeEnv(workflow, step []template.NamedText) []template.NamedText {
	all := slices.Clone(step)
	for _, e := range workflow {
		if !slices.ContainsFunc(step, func(s template.NamedText) bool { return s.Name == e.Name }) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b template.NamedText) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// actionKeys are those that steps and on-give-up have in common.
var actionKeys = []key[*workflowReader, stepDraft]{
	{
		Name: "run", Doc: "The command and its arguments, as a list; no shell is used. Each is a template.",
		Schema: commandSchema, Set: setRun,
	},
	{
		Name: "http", Doc: "The request, with exactly one of get, post, put, patch, delete, head.", Schema: httpSchema,
		Set: func(r *workflowReader, at place, d *stepDraft) { r.http(at, d) },
	},
	{
		Name: "dir", Doc: "Working folder of the command, relative to the folder of this file. Default: the folder of this file.", Schema: strictyaml.ScalarSchema,
		Set: func(r *workflowReader, at place, d *stepDraft) {
			if s, ok := at.Text(); ok {
				d.Dir = r.path(at, s)
				at.Record(d.Dir)
			}
		},
	},
	{
		Name: "env", Doc: "Environment variables of the command; they override those of the workflow. Values are templates and may contain references.", Schema: envSchema,
		Set: func(r *workflowReader, at place, d *stepDraft) {
			d.Texts.Env = r.Map(at, d.fields, wrongVariable, d.addText)
		},
	},
	{
		Name: "env-inherit", Doc: inheritDoc + "In addition to PATH, HOME, USER, LANG, LC_*, TZ, TMPDIR, TIDEOVER_* and what the workflow and server.env-inherit name.", Schema: inheritSchema,
		Set: func(_ *workflowReader, at place, d *stepDraft) { d.Inherit = readInherit(at) },
	},
	{
		Name: "stdin", Doc: "Standard input of the command, a template. Default: empty.", Schema: strictyaml.ScalarSchema,
		Set: func(r *workflowReader, at place, d *stepDraft) {
			if d.Texts.Stdin = r.used(at, "stdin", template.WithoutRefs, d); d.Texts.Stdin != nil {
				at.Record(d.Texts.Stdin.Source())
			}
		},
	},
	{
		Name: "policy", Doc: "Retry policy: a text, the name of a policy, or a map. Default: workflow for a command, workflow-api for a request.", Schema: policySchema,
		Set: func(*workflowReader, place, *stepDraft) {}, // read by stepPolicy, when the kind of the step is known
	},
	{
		Name: "output-limit", Default: "64KiB", Doc: "How much of stdout and of stderr is stored; at most 192KiB each.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{
				Types: []string{"string", "integer"}, Minimum: new(1.0), Maximum: new(float64(steps.MaxOutput)),
				Pattern: `^0*[1-9][0-9]{0,2}(KiB|kB|KB)$|^0*[1-9][0-9]{0,5}B?$`,
			}
		},
		Set: func(_ *workflowReader, at place, d *stepDraft) {
			if d.OutputLimit = strictyaml.ReadSize(at); d.OutputLimit > steps.MaxOutput {
				at.Bad("%q is too much: at most %dKiB is kept of a stream; write more to a file", at.Node.Text, steps.MaxOutput>>10)
			}
		},
	},
}

// alarmKeys are the keys of on-give-up.
var alarmKeys = append(slices.Clone(actionKeys), key[*workflowReader, stepDraft]{
	Name: "notify", Doc: "Notifiers that get a message.",
	Schema: func() *jsonschema.Schema { return notifierListSchema(1) },
	Set: func(r *workflowReader, at place, d *stepDraft) {
		if d.notify = r.notifiers.names(at); at.Node.Kind == strictyaml.KindList && len(at.Node.Items) == 0 {
			at.Bad("the list is empty, so no message would be sent; add a notifier")
		}
	},
})

// stepKeys are the keys of a step.
var stepKeys = append([]key[*workflowReader, stepDraft]{
	{
		Name: "id", Required: true, Doc: "Name of the step, unique in the workflow.", Schema: strictyaml.NameSchema,
		Set: func(_ *workflowReader, at place, d *stepDraft) {
			s, ok := at.Text()
			if ok && !strictyaml.ValidName(s) {
				at.Bad("%q is not a valid name for a step; %s", s, strictyaml.NameRule)
			} else if ok {
				d.ID = s
				at.Record(s)
			}
		},
	},
	{
		Name: "needs", Doc: "Ids of the steps that must succeed before this one starts.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: strictyaml.NameSchema(), UniqueItems: true}
		},
		Set: func(_ *workflowReader, at place, d *stepDraft) {
			ok := at.Each(func(at place) {
				if _, ok := at.Text(); ok {
					d.needs = append(d.needs, at)
				}
			})
			if ok {
				at.Record(jsonText(at.Node.Plain()))
			}
		},
	},
	{
		Name: "retry-exit", Doc: "Exit codes that are retried, such as 75 or 100-110; other codes are permanent failures. Default: all codes but 0.", Schema: exitSchema,
		Set: func(_ *workflowReader, at place, d *stepDraft) { d.RetryExit = readCodes(at, "an exit code", 1, 255) },
	},
	{
		Name: "permanent-exit", Doc: "Exit codes that are never retried.", Schema: exitSchema,
		Set: func(_ *workflowReader, at place, d *stepDraft) {
			d.PermanentExit = readCodes(at, "an exit code", 1, 255)
		},
	},
	{
		Name: "account", Doc: "Account whose limit the command shares with sessions and other steps. Exit code 75 means that the account is limited.", Schema: strictyaml.NameSchema,
		Set: func(_ *workflowReader, at place, d *stepDraft) {
			if d.Account = readAccount(at); d.Account == account.None {
				d.Account = ""
			}
		},
	},
	{
		Name: "concurrency", Default: "0", Doc: "Most attempts of this step at the same time, in all runs together; 0 for no limit.", Schema: strictyaml.IntSchema(0),
		Set: func(_ *workflowReader, at place, d *stepDraft) { d.Concurrency = strictyaml.ReadInt(at, 0) },
	},
	{
		Name: "max-lost", Doc: "How many attempts in a row may be lost because the server died, and are repeated; 0 repeats none. Default: that of the workflow, which is 3 by default.", Schema: maxLostSchema,
		Set: func(_ *workflowReader, at place, d *stepDraft) { d.MaxLost, d.ownMaxLost = readMaxLost(at), true },
	},
}, actionKeys...)

func setRun(r *workflowReader, at place, d *stepDraft) {
	d.Texts.Run = readCommandLine(at, func(at place) *template.Text { return r.used(at, "run", template.WithoutRefs, d) })
}

// used reads a template of a step, to be checked when all steps are known.
func (r *workflowReader) used(at place, name string, mode template.RefMode, d *stepDraft) *template.Text {
	t, ok := r.Text(at, name, mode, d.fields)
	if !ok {
		return nil
	}
	d.addText(at, t)
	return t
}

var envName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// addText remembers a template of the step, to be checked when all steps are known.
func (d *stepDraft) addText(at place, t *template.Text) {
	d.texts = append(d.texts, usedText{at, t})
}

// wrongVariable returns what is wrong with the name of a variable, or "".
func wrongVariable(name string) string {
	if envName.MatchString(name) {
		return ""
	}
	return "is not the name of a variable"
}
