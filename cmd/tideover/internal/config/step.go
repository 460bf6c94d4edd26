package config

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/lazyregexp"
)

func (r *workflowReader) newStep(id string, at place) *stepDraft {
	step := &steps.Step{ID: id, Base: r.Dir, Dir: r.Dir, MaxLost: defaultMaxLost}
	return &stepDraft{Step: step, at: at, fields: steps.StepFields, kinds: actionKinds}
}

// step reads an item of a workflow's steps.
func (r *workflowReader) step(at place, env []template.NamedText) *stepDraft {
	d := r.newStep("", at)
	d.kinds = stepKinds
	r.readStep(d, env, r.stepKeys(d))
	return d
}

// alarm reads on-give-up: the step that runs when a run gives up.
func (r *workflowReader) alarm(at place, env []template.NamedText) *stepDraft {
	d := r.newStep("on-give-up", at)
	d.GiveUp = true
	r.readStep(d, env, r.alarmKeys(d))
	return d
}

func (r *workflowReader) readStep(d *stepDraft, env []template.NamedText, keys []key) {
	at := d.at
	found, ok := strictyaml.Object(at, keys)
	kinds := present(found, d.kinds)
	if here, notify := found["notify"]; notify {
		if len(found) > 1 {
			here.Bad("can't be combined with other keys; the notifier defines what is sent and how")
		}
		return
	}
	if len(kinds) != 1 {
		if ok { // if not ok, one of the invalid keys may be a misspelled run or http
			at.Bad("want exactly one of %s", enumerate(d.kinds))
		}
		return
	}
	r.checkForm(d, found, kinds[0], env)
	if slices.Contains(actionKinds, kinds[0]) {
		d.Policy = r.policies.ofStep(at, found, kinds[0] == "run")
		checkAction(d, found, env)
	}
}

// checkAction refuses the keys of commands in a request, checks the exit codes of a
// command, and adds env, the variables of the workflow, to its variables.
func checkAction(d *stepDraft, found map[string]place, env []template.NamedText) {
	if _, http := found["http"]; http {
		for _, name := range commandOnly {
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

// mergeEnv returns the variables of the workflow and of the step, sorted by name. A
// variable of the step replaces a variable of the workflow with the same name.
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

// actionKeys are the keys that steps and on-give-up have in common.
func (r *workflowReader) actionKeys(d *stepDraft) []key {
	return []key{
		strictyaml.Func("run", "", commandSchema, func(at place) {
			d.Texts.Run = readCommandLine(at, func(at place) *template.Text { return r.used(at, "run", template.WithoutRefs, d) })
		}, "The command and its arguments, as a list; no shell is used. Each is a template."),
		strictyaml.Func("http", "", oneOf(r.httpKeys(d), methods...), func(at place) { r.http(at, d) },
			"The request, with exactly one of get, post, put, patch, delete, head."),
		strictyaml.Field(&d.Dir, "dir", "", strictyaml.ScalarSchema, r.filePath,
			"Working folder of the command, relative to the folder of this file. Default: the folder of this file."),
		strictyaml.Func("env", "", envSchema, func(at place) {
			d.Texts.Env = r.Map(at, d.fields, wrongVariable, d.addText)
		}, "Environment variables of the command; they override those of the workflow. Values are templates and may contain references."),
		strictyaml.Field(&d.Inherit, "env-inherit", "", inheritSchema, readInherit,
			inheritDoc),
		strictyaml.Func("stdin", "", strictyaml.ScalarSchema, func(at place) {
			d.Texts.Stdin = r.used(at, "stdin", template.WithoutRefs, d)
			at.Record(at.Node.Text)
		}, "Standard input of the command, a template. Default: empty."),
		strictyaml.Func("policy", "", policySchema, func(place) {
			// policyReader.ofStep reads it, when the kind of the step is known.
		}, "Retry policy: a text, the name of a policy, or a map. Default: workflow for a command, workflow-api for a request."),
		strictyaml.Field(&d.OutputLimit, "output-limit", "64KiB", outputLimitSchema, readOutputLimit,
			"How much of stdout and of stderr is stored; at most 192KiB each."),
	}
}

func outputLimitSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Types: []string{"string", "integer"}, Minimum: new(1.0), Maximum: new(float64(steps.MaxOutput)),
		Pattern: `^0*[1-9][0-9]{0,2}(KiB|kB|KB)$|^0*[1-9][0-9]{0,5}B?$`,
	}
}

func readOutputLimit(at place) int64 {
	n := strictyaml.ReadSize(at)
	if n > steps.MaxOutput {
		at.Bad("%q is too much: at most %dKiB is kept of a stream; write more to a file", at.Node.Text, steps.MaxOutput>>10)
	}
	return n
}

// alarmKeys are the keys of on-give-up.
func (r *workflowReader) alarmKeys(d *stepDraft) []key {
	return append(r.actionKeys(d), strictyaml.Func("notify", "", notifierListSchema(1), func(at place) {
		d.notify = r.notifiers.names(at)
		refuseEmpty(at, "the list is empty, so no message would be sent; add a notifier")
	}, "Notifiers that get a message."))
}

// stepKeys are the keys of a step.
func (r *workflowReader) stepKeys(d *stepDraft) []key {
	return slices.Concat(ownStepKeys(d), r.formKeys(d), r.actionKeys(d))
}

// ownStepKeys are the keys of a step that on-give-up does not have.
func ownStepKeys(d *stepDraft) []key {
	return []key{
		strictyaml.Required(strictyaml.Field(&d.ID, "id", "", strictyaml.NameSchema,
			func(at place) string { return strictyaml.ReadName(at, "step") },
			"Name of the step, unique in the workflow.")),
		strictyaml.Func("needs", "", namesSchema, func(at place) {
			at.Each(func(at place) {
				if _, ok := at.Text(); ok {
					d.needs = append(d.needs, at)
				}
			})
			at.Record(jsonText(at.Node.Plain()))
		}, "Ids of the steps that must succeed before this one starts."),
		strictyaml.Field(&d.RetryExit, "retry-exit", "", exitSchema, readExitCodes,
			"Exit codes that are retried, such as 75 or 100-110; other codes are permanent failures. Default: all codes but 0."),
		strictyaml.Field(&d.PermanentExit, "permanent-exit", "", exitSchema, readExitCodes,
			"Exit codes that are never retried."),
		strictyaml.Field(&d.Account, "account", "", strictyaml.NameSchema, readSharedAccount,
			"Account whose limit the command shares. Exit code 75 means that the account is limited."),
		strictyaml.Int(&d.Concurrency, "concurrency", "0", 0,
			"Most attempts of this step at the same time, in all runs together; 0 for no limit."),
		strictyaml.Func("max-lost", "", maxLostSchema, func(at place) { d.MaxLost, d.ownMaxLost = readMaxLost(at), true },
			"Attempts in a row that may be lost because the server died, and are repeated; 0 repeats none. Default: that of the workflow, which is 3 by default."),
	}
}

// used reads a template of a step, and keeps it for checkUses.
func (r *workflowReader) used(at place, name string, mode template.RefMode, d *stepDraft) *template.Text {
	t, ok := r.Text(at, name, mode, d.fields)
	if !ok {
		return nil
	}
	d.addText(at, t)
	return t
}

var envName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// addText keeps a template of the step for checkUses, which needs all steps.
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

var methods = []string{"get", "post", "put", "patch", "delete", "head"}

// http reads the key http of a step: a request with exactly one method.
func (r *workflowReader) http(at place, d *stepDraft) {
	found, ok := strictyaml.Object(at, r.httpKeys(d))
	if !ok {
		return
	}
	given := present(found, methods)
	switch body, hasBody := found["body"]; {
	case len(given) == 0:
		at.Bad("the method is missing; want one of %s with the URL", strings.Join(methods, ", "))
	case len(given) > 1:
		found[given[1]].Bad("can't be combined with %s; a request has one method", given[0])
	case hasBody && (given[0] == "get" || given[0] == "head"):
		body.Bad("a %s request can't have a body", given[0])
	}
}

// httpKeys are the keys of a request.
func (r *workflowReader) httpKeys(d *stepDraft) []key {
	// The provider comes before the methods: with a provider, their URLs are paths.
	keys := []key{strictyaml.Func("provider", "", strictyaml.NameSchema, func(at place) {
		s, ok := at.Text()
		d.Provider = cmp.Or(s, "?") // set even if it is invalid, so that the URL is checked as a path
		if ok && r.providers.providers[s] == nil {
			at.Bad("%s", strictyaml.UnknownName("provider", s, r.providers.names))
		}
		at.Record(s)
	}, "Provider to send the request to, with the provider's keys, limits and breaker. The URL is then a path below its base-url.")}
	for _, m := range methods {
		method := strings.ToUpper(m)
		keys = append(keys, strictyaml.Func(m, "", strictyaml.TextSchema, func(at place) {
			d.Method, d.Texts.URL = method, r.url(at, d)
		}, "URL, or with provider a path such as /v1/models; a template that may contain references."))
	}
	return append(keys,
		strictyaml.Func("headers", "", headersSchema, func(at place) {
			d.Texts.Headers = r.Map(at, d.fields, headerNames(), func(at place, t *template.Text) {
				d.addText(at, t)
				if strings.HasSuffix(strings.ToLower(at.Path()), ".host") && t.ChoosesHost() {
					r.targets = append(r.targets, at)
				}
			})
		}, "Headers of the request. Values are templates and may contain references."),
		strictyaml.Func("body", "", strictyaml.ScalarSchema, func(at place) {
			d.Texts.Body = r.used(at, "body", template.WithoutRefs, d)
			at.Record(at.Node.Text)
		}, "Body of the request, a template."),
		strictyaml.Field(&d.Expect, "expect", "", statusSchema, readStatuses,
			"Status codes that count as success, such as 200 or 200-204. Default: 200-299."),
	)
}

func statusSchema() *jsonschema.Schema { return codesSchema(100, 599, `0*[1-5][0-9][0-9]`) }

func readStatuses(at place) exitcode.Set { return readCodes(at, "a status", 100, 599) }

// url reads the URL of a request. A URL without templates and references is checked here;
// others are checked when they are rendered.
func (r *workflowReader) url(at place, d *stepDraft) *template.Text {
	if s := at.Node.Text; at.Node.Kind == strictyaml.KindText {
		if literal, found := template.URLSecret(s); found {
			template.RefuseLiteral(at, literal, template.WithRefs)
			return nil
		}
	}
	t := r.used(at, "url", template.WithRefs, d)
	if t == nil {
		return nil
	}
	msg := ""
	switch {
	case d.Provider != "" && !t.IsConstant():
		msg = steps.PathStartProblem(t.Source())
	case t.IsConstant():
		msg = d.TargetProblem(t.Literal())
	}
	if msg != "" {
		at.Bad("%q %s", t.Source(), msg)
		return nil
	}
	if d.Provider == "" && t.ChoosesHost() {
		r.targets = append(r.targets, at)
	}
	at.Record(t.Source())
	return t
}

var headerName = lazyregexp.New("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// clientHeaders are the headers that the HTTP client sets itself.
var clientHeaders = []string{"Content-Length", "Transfer-Encoding", "Connection"}

// anyCase returns a pattern that matches the names in any case. It has both cases of each
// letter, because patterns in a JSON Schema have no flag for that.
func anyCase(names []string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.Join(names, "|")) {
		if unicode.IsLetter(r) {
			fmt.Fprintf(&b, "[%c%c]", unicode.ToUpper(r), r)
		} else {
			b.WriteRune(r)
		}
	}
	return "^(" + b.String() + ")$"
}

// headerNames returns a function that checks the name of the next header of a map, and
// returns what is wrong with it, or "". A name that it has seen before is wrong.
func headerNames() func(name string) string {
	seen := map[string]bool{}
	return func(name string) string {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !headerName.MatchString(name):
			return "is not the name of a header"
		case slices.Contains(clientHeaders, canonical):
			return "is set by the client itself"
		case seen[canonical]:
			return "is already set in another spelling"
		}
		seen[canonical] = true
		return ""
	}
}
