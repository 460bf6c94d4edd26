package config

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// MaxOutput is the largest limit of what is kept of a stream. Results are kept
// in memory and in the log, with those of all steps of a run.
const MaxOutput = 192 << 10

// Step is one step of a workflow: a command or an HTTP request. It is stored
// with the run that it is part of, as JSON, and renders the same when it is read
// back; see [Step.MarshalJSON].
type Step struct {
	ID            string
	Needs         []string // ids of steps that must have succeeded before
	Policy        retry.Policy
	Dir           string       // working folder of a command, absolute
	Inherit       Inherit      // variables of the server that a command gets, beside those of Server.Inherit
	RetryExit     exitcode.Set // exit codes that are retried; nil means all but 0
	PermanentExit exitcode.Set // exit codes that are never retried
	OutputLimit   int64        // bytes that are kept of stdout, and of stderr
	Concurrency   int          // attempts of this step at once, all runs together; 0 means no limit
	MaxLost       int          // lost attempts in a row that are made again; not stored with a run's step, the engine has it
	Account       string       // whose limit a command shares with others; empty for none
	Method        string       // of a request; empty for a command
	Provider      string       // that a request goes to; empty means that its URL says where
	Expect        exitcode.Set // statuses of a request that are a success; nil means 200-299

	run     []*template.Text
	env     []template.NamedText // sorted by name
	stdin   *template.Text
	url     *template.Text
	headers []template.NamedText // sorted by name
	body    *template.Text

	after  []string // steps that have ended before, sorted: Needs, and what they need
	giveUp bool     // for runs that gave up
	base   string   // where relative paths of references start
}

// IsHTTP reports whether the step is a request and not a command.
func (s *Step) IsHTTP() bool { return s.Method != "" }

// Retryable reports whether a command that ended with the code may be tried
// again.
func (s *Step) Retryable(exit int) bool {
	return !s.PermanentExit.Has(exit) && (s.RetryExit == nil || s.RetryExit.Has(exit))
}

// Expected reports whether a response with the status is a success.
func (s *Step) Expected(status int) bool {
	if s.Expect == nil {
		return status >= 200 && status <= 299
	}
	return s.Expect.Has(status)
}

// step reads an item of a workflow's steps.
func (l *loader) step(at strictyaml.Place, env []template.NamedText) stepDraft {
	return readStep(l, at, env, stepKeys, "")
}

// alarm reads what runs when a run gives up.
func (l *loader) alarm(at strictyaml.Place, env []template.NamedText) stepDraft {
	d := readStep(l, at, env, alarmKeys, "on-give-up")
	d.giveUp = true
	return d
}

func readStep(l *loader, at strictyaml.Place, env []template.NamedText, keys []strictyaml.Key[*loader, stepDraft], id string) stepDraft {
	d := stepDraft{Step: &Step{ID: id, base: l.Dir, Dir: l.Dir, MaxLost: defaultMaxLost}, at: at, fields: stepRoots}
	found, ok := strictyaml.Object(l, at, keys, &d)
	_, run := found["run"]
	_, http := found["http"]
	if here, notify := found["notify"]; notify {
		if run || http || len(found) > 1 {
			here.Bad("notify stands alone; what is sent, and how, is said where the notifier is")
		}
		return d
	}
	if run == http {
		if ok { // otherwise the key that is wrong may be meant for it
			at.Bad("a step has either run or http")
		}
		return d
	}
	d.Policy = l.stepPolicy(at, found, run)
	l.action(&d, found, env)
	return d
}

// action checks what goes with a command and what with a request.
func (l *loader) action(d *stepDraft, found map[string]strictyaml.Place, env []template.NamedText) {
	if _, http := found["http"]; http {
		for _, name := range []string{"dir", "env", "env-inherit", "stdin", "retry-exit", "permanent-exit", "account"} {
			if here, ok := found[name]; ok {
				here.Bad("%s is for commands; this step is a request", name)
			}
		}
		d.Dir, d.env = "", nil
		return
	}
	if code, ok := d.RetryExit.Overlap(d.PermanentExit); ok {
		found["permanent-exit"].Bad("%d is in retry-exit too", code)
	}
	d.env = mergeEnv(env, d.env)
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
var actionKeys = []strictyaml.Key[*loader, stepDraft]{
	{
		Name: "run", Doc: "The command and its arguments, as a list; there is no shell. Each is a template.",
		Schema: commandSchema, Set: setRun,
	},
	{
		Name: "http", Doc: "The request, with exactly one of get, post, put, patch, delete, head.", Schema: httpSchema,
		Set: func(l *loader, at strictyaml.Place, d *stepDraft) { l.http(at, d) },
	},
	{
		Name: "dir", Doc: "Working folder of the command, relative to the file's; the file's unless said.", Schema: strictyaml.ScalarSchema,
		Set: func(l *loader, at strictyaml.Place, d *stepDraft) {
			if s, ok := at.Text(); ok {
				d.Dir = l.path(at, s)
				at.Record(d.Dir)
			}
		},
	},
	{
		Name: "env", Doc: "Environment of the command, over the workflow's. Values are templates and may have references.", Schema: envSchema,
		Set: func(l *loader, at strictyaml.Place, d *stepDraft) {
			d.env = l.Map(at, d.fields, wrongVariable, d.addText)
		},
	},
	{
		Name: "env-inherit", Doc: inheritDoc + "In addition to PATH, HOME, USER, LANG, LC_*, TZ, TMPDIR, TIDEOVER_* and what the workflow and server.env-inherit name.", Schema: inheritSchema,
		Set: func(l *loader, at strictyaml.Place, d *stepDraft) { d.Inherit = l.inherit(at) },
	},
	{
		Name: "stdin", Doc: "What the command reads, a template; nothing unless said.", Schema: strictyaml.ScalarSchema,
		Set: func(l *loader, at strictyaml.Place, d *stepDraft) {
			if d.stdin = l.used(at, "stdin", template.WithoutRefs, d); d.stdin != nil {
				at.Record(d.stdin.Source())
			}
		},
	},
	{
		Name: "policy", Doc: "When it is tried again: a text, the name of a policy, or a map; workflow for a command and workflow-api for a request unless said.", Schema: policySchema,
		Set: func(*loader, strictyaml.Place, *stepDraft) {}, // read by stepPolicy, when the kind of the step is known
	},
	{
		Name: "output-limit", Default: "64KiB", Doc: "How much is kept of stdout, and of stderr; 192KiB at most.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{
				Types: []string{"string", "integer"}, Minimum: new(1.0), Maximum: new(float64(MaxOutput)),
				Pattern: `^0*[1-9][0-9]{0,2}(KiB|kB|KB)$|^0*[1-9][0-9]{0,5}B?$`,
			}
		},
		Set: func(l *loader, at strictyaml.Place, d *stepDraft) {
			if d.OutputLimit = strictyaml.ReadSize(at); d.OutputLimit > MaxOutput {
				at.Bad("%q is too much: at most %dKiB is kept of a stream; write more to a file", at.Node.Text, MaxOutput>>10)
			}
		},
	},
}

// alarmKeys are the keys of on-give-up.
var alarmKeys = append(slices.Clone(actionKeys), strictyaml.Key[*loader, stepDraft]{
	Name: "notify", Doc: "Notifiers that are told.",
	Schema: func() *jsonschema.Schema { return notifierListSchema(1) },
	Set: func(l *loader, at strictyaml.Place, d *stepDraft) {
		if d.notify = l.notifierNames(at); at.Node.Kind == strictyaml.KindList && len(at.Node.Items) == 0 {
			at.Bad("the list is empty, so that nobody would be told")
		}
	},
})

// stepKeys are the keys of a step.
var stepKeys = append([]strictyaml.Key[*loader, stepDraft]{
	{
		Name: "id", Required: true, Doc: "Name of the step, once in a workflow.", Schema: strictyaml.NameSchema,
		Set: func(l *loader, at strictyaml.Place, d *stepDraft) {
			s, ok := at.Text()
			if ok && !strictyaml.ValidName(s) {
				at.Bad("%q is not a name for a step; %s", s, strictyaml.NameRule)
			} else if ok {
				d.ID = s
				at.Record(s)
			}
		},
	},
	{
		Name: "needs", Doc: "Ids of the steps that must have succeeded before.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: strictyaml.NameSchema(), UniqueItems: true}
		},
		Set: func(l *loader, at strictyaml.Place, d *stepDraft) {
			ok := at.Each(func(at strictyaml.Place) {
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
		Name: "retry-exit", Doc: "Exit codes that are retried, such as 75 or 100-110; others are permanent. All but 0 unless said.", Schema: exitSchema,
		Set: func(l *loader, at strictyaml.Place, d *stepDraft) { d.RetryExit = l.codes(at, "an exit code", 1, 255) },
	},
	{
		Name: "permanent-exit", Doc: "Exit codes that are never retried.", Schema: exitSchema,
		Set: func(l *loader, at strictyaml.Place, d *stepDraft) {
			d.PermanentExit = l.codes(at, "an exit code", 1, 255)
		},
	},
	{
		Name: "account", Doc: "The account whose limit the command shares with sessions and other steps; exit code 75 says that it is limited.", Schema: strictyaml.NameSchema,
		Set: func(l *loader, at strictyaml.Place, d *stepDraft) {
			if d.Account = l.account(at); d.Account == account.None {
				d.Account = ""
			}
		},
	},
	{
		Name: "concurrency", Default: "0", Doc: "Attempts of this step at once, all runs together; 0 for no limit.", Schema: strictyaml.IntSchema(0),
		Set: func(l *loader, at strictyaml.Place, d *stepDraft) { d.Concurrency = strictyaml.ReadInt(at, 0) },
	},
	{
		Name: "max-lost", Doc: "How many attempts in a row may be lost, because the server died, and are made again; 0 for none. The workflow's unless said, or 3.", Schema: maxLostSchema,
		Set: func(l *loader, at strictyaml.Place, d *stepDraft) { d.MaxLost, d.ownMaxLost = l.maxLost(at), true },
	},
}, actionKeys...)

func setRun(l *loader, at strictyaml.Place, d *stepDraft) {
	d.run = l.commandLine(at, func(at strictyaml.Place) *template.Text { return l.used(at, "run", template.WithoutRefs, d) })
}

// commandLine reads a command and its arguments, each by read.
func (l *loader) commandLine(at strictyaml.Place, read func(strictyaml.Place) *template.Text) (argv []*template.Text) {
	if at.Node.Kind == strictyaml.KindText {
		at.Bad(`a text, where a list is expected: [%s]; there is no shell, for one write [sh, -c, "…"]`,
			textfmt.Clip(strings.Join(strings.Fields(strictyaml.MaskKnown(at.Node.Text)), ", "), strictyaml.MaxQuoted))
		return nil
	}
	ok := at.Each(func(at strictyaml.Place) {
		if t := read(at); t != nil {
			argv = append(argv, t)
		}
	})
	switch {
	case !ok:
	case len(at.Node.Items) == 0 || at.Node.Items[0].IsScalar() && at.Node.Items[0].Text == "":
		at.Bad("there is no command")
	default:
		var words []string
		for _, n := range at.Node.Items {
			words = append(words, n.Text)
		}
		at.Record(jsonText(words))
	}
	return argv
}

// used reads a template of a step, to be checked when all steps are known.
func (l *loader) used(at strictyaml.Place, name string, mode template.RefMode, d *stepDraft) *template.Text {
	t, ok := l.Text(at, name, mode, d.fields)
	if !ok {
		return nil
	}
	d.addText(at, t)
	return t
}

var envName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// addText remembers a template of the step, to be checked when all steps are known.
func (d *stepDraft) addText(at strictyaml.Place, t *template.Text) {
	d.texts = append(d.texts, usedText{at, t})
}

// wrongVariable says what is wrong with the name of a variable.
func wrongVariable(name string) string {
	if envName.MatchString(name) {
		return ""
	}
	return "is not the name of a variable"
}

// path makes a path of the file absolute.
func (l *loader) path(at strictyaml.Place, s string) string {
	if s == "~" || strings.HasPrefix(s, "~/") {
		home := l.env.home()
		if home == "" {
			at.Bad("%q: there is no home folder; write the path in full", s)
		}
		s = filepath.Join(home, strings.TrimPrefix(s, "~"))
	} else if strings.HasPrefix(s, "~") {
		at.Bad("%q: only ~/ is expanded, for one's own home folder", s)
	}
	if strings.ContainsRune(s, 0) || s == "" {
		at.Bad("%q is not a path", s)
	}
	if filepath.IsAbs(s) {
		return filepath.Clean(s)
	}
	if at.Node.Origin != "" { // typed by somebody who is in another folder
		if abs, err := filepath.Abs(s); err == nil {
			return abs
		}
	}
	return filepath.Join(l.Dir, s)
}
