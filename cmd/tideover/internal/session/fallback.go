package session

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// DefaultFallbackAfter is the default of Spec.FallbackAfter: a session is handed over to another
// assistant only if its limit lasts longer.
const DefaultFallbackAfter = time.Hour

// promptField is the template field of the prompt that a fallback assistant gets.
const promptField = "{{.Prompt}}"

// headless has the arguments with which each assistant works on a prompt without user interaction.
// They allow the assistant to change files in the folder.
var headless = map[string][]string{
	"claude": {"-p", promptField, "--permission-mode", "acceptEdits"},
	"codex":  {"exec", "--json", "--sandbox", "workspace-write", promptField},
	"gemini": {"-p", promptField, "--approval-mode", "auto_edit"},
}

// Fallback is an assistant that works in the folder of a session while the session waits for the
// end of a limit.
type Fallback struct {
	Name     string   `json:"name"`                 // of the assistant
	Start    []string `json:"start"`                // templates, with the prompt
	Resume   []string `json:"resume,omitempty"`     // templates; as in [Spec]
	NoResume string   `json:"no_resume,omitempty"`  // as in [Spec]
	ID       string   `json:"session_id,omitempty"` // in the start command itself
	Pack     string   `json:"pack"`                 // built-in pack that detects why it stopped
	Login    string   `json:"login,omitempty"`      // as in [Spec]
}

// ParseFallback parses an assistant: its name or path alone, or a command with {{.Prompt}}.
func ParseFallback(words []string) (Fallback, error) {
	known := strings.Join(slices.Sorted(maps.Keys(headless)), ", ")
	if len(words) == 0 || words[0] == "" {
		return Fallback{}, fmt.Errorf("no assistant given: want one of %s, or a command with %s", known, promptField)
	}
	f := Fallback{Name: filepath.Base(words[0]), Start: slices.Clone(words)}
	switch args := headless[f.Name]; {
	case len(words) > 1 && !mentions(words, "Prompt"):
		return f, fmt.Errorf("the command of %s does not contain %s, so the assistant would get no task: add it as an argument", f.Name, promptField)
	case len(words) > 1 && promptInScript(words):
		return f, fmt.Errorf(`%s is inside a shell script, so the shell would run the prompt as code: pass it as an argument: [sh, -c, '%s "$1"', sh, "%s"]`,
			promptField, "codex exec", promptField)
	case len(words) > 1:
		if _, assistant, _ := unwrap(words); assistant != "" {
			f.Name = assistant
		}
	case args == nil:
		return f, fmt.Errorf("%q is not a known assistant: want one of %s, or a command with %s", words[0], known, promptField)
	default:
		f.Start = append(f.Start, args...)
	}
	planned := &Spec{Name: "fallback", Start: f.Start, Pack: CommandPack(f.Start)}
	planned.PlanResume(false)
	f.Start, f.Resume, f.ID, f.NoResume, f.Pack = planned.Start, planned.Resume, planned.SessionID, planned.NoResume, planned.Pack
	if _, err := render(slices.Concat(f.Start, f.Resume), fallbackData{data: sample}); err != nil {
		return f, err
	}
	return f, nil
}

func isShell(word string) bool { return slices.Contains(shells, filepath.Base(word)) }

// promptInScript reports whether the prompt would become part of a shell script.
func promptInScript(argv []string) bool {
	for i, arg := range argv {
		if slices.ContainsFunc(argv[:i], isShell) && shellScript.MatchString(arg) && i+1 < len(argv) {
			return mentions(argv[i+1:i+2], "Prompt")
		}
	}
	return false
}

// Account returns the account of the assistant; "" if it is unknown.
func (f *Fallback) Account() string {
	return cmp.Or(f.Login, toolAccount(&Spec{Start: f.Start, Pack: f.Pack}))
}

// spec returns the assistant as a session in the folder of s. number is the number of the handover
// within the run.
func (f *Fallback) spec(s *Spec, run string, number int, prompt string) *Spec {
	return &Spec{
		Name: s.Name, Dir: s.Dir, Env: s.Env, PolicyText: s.PolicyText, AccountSpread: s.AccountSpread,
		Start: f.Start, Resume: f.Resume, NoResume: f.NoResume, SessionID: f.ID, Pack: f.Pack, Login: f.Login,
		handedOver: true, prompt: prompt, idSeed: fmt.Sprintf("%s hand-over %d to %s", run, number, f.Name),
	}
}

// AssistantName returns the name of the session's own assistant, for display.
func (s *Spec) AssistantName() string {
	if _, assistant, _ := unwrap(s.Start); assistant != "" {
		return assistant
	}
	if len(s.Start) == 0 {
		return ""
	}
	return filepath.Base(s.Start[0])
}

// checkFallback validates the settings of fallbacks.
func (s *Spec) checkFallback(errs *fieldErrors) {
	if len(s.Fallback) == 0 {
		errs.check(s.FallbackAfter == 0, "fallback-after", "no effect without fallback")
		errs.check(s.FallbackPrompt == "", "fallback-prompt", "no effect without fallback")
		return
	}
	errs.check(s.FallbackAfter >= 0, "fallback-after", "%v is negative", s.FallbackAfter)
	_, err := s.handoverPrompt("", time.Time{})
	errs.checkError("fallback-prompt", err)
	own := cmp.Or(s.AccountName(), s.Login, toolAccount(s))
	for i := range s.Fallback {
		f := &s.Fallback[i]
		name := f.Account()
		errs.check(name == "" || name != own, "fallback",
			"%s uses the same account (%s) as the session and so has the same limit: name an assistant of another account", f.Name, name)
		twice := slices.ContainsFunc(s.Fallback[:i], func(g Fallback) bool { return slices.Equal(g.Start, f.Start) })
		errs.check(!twice, "fallback", "%s is given twice", f.Name)
	}
}

// maxTask limits the part of the first prompt that the prompt of a handover repeats. Systems reject
// arguments of more than 128 KiB.
const maxTask = 64 << 10

// defaultFallbackPrompt is the default prompt of a handover.
const defaultFallbackPrompt = `Another assistant ({{.Assistant}}) worked in this folder and was stopped by a usage limit until {{.Until}}. ` +
	`Take over until then; afterwards {{.Assistant}} goes on with what you leave. ` +
	`First look at what is there: git status, git log, and notes or lists of tasks. Then continue the work. ` +
	`When you stop, leave the folder so that another assistant can go on, and write down what is left to do.
{{if .Task}}
The task that {{.Assistant}} was given:

{{.Task}}{{else}}
The task is not known: it is what the files and the history of the folder show to be under way.{{end}}`

// promptData has the fields that the template of a prompt can use.
type promptData struct {
	Assistant string // the one that was stopped
	Until     string // when its limit ends
	Task      string // its first prompt; "" if unknown
	Name      string // of the session
}

// handoverPrompt returns the prompt for an assistant that takes over.
func (s *Spec) handoverPrompt(task string, until time.Time) (string, error) {
	text := cmp.Or(s.FallbackPrompt, defaultFallbackPrompt)
	t, err := template.New("prompt").Option("missingkey=error").Parse(text)
	if err != nil {
		return "", err
	}
	task = textfmt.TruncateValid(task, maxTask, "… (cut)")
	var b strings.Builder
	err = t.Execute(&b, promptData{s.AssistantName(), until.Local().Format("Jan 2 15:04 MST"), task, s.Name})
	if err != nil {
		return "", fmt.Errorf("%w: the fields are .Assistant, .Until, .Task and .Name", err)
	}
	return b.String(), nil
}

// task returns the first prompt of the session; "" if it is unknown.
func (s *Spec) task(d data) string {
	if s.Stdin != "" {
		return s.Stdin
	}
	_, r := planOf(s.Start, false)
	text, err := render([]string{r.prompt}, d)
	if err != nil {
		return ""
	}
	return text[0]
}

// returnPrompt is the prompt of a session that is resumed after other assistants have worked in its
// folder.
func returnPrompt(others []string) string {
	return continuePrompt + " While your usage limit lasted, another assistant (" + strings.Join(others, ", ") +
		") worked in this folder: look at what it changed, for example with git status and git log, before you go on."
}
