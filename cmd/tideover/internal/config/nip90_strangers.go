package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
)

// checkStrangers refuses templates where whoever asks for a job could make something
// else of a step: which program runs, what a shell does, which host is asked. A
// workflow is started by people who are known; a job by everybody. Via says how the
// step is reached, if it is not the job's own.
func checkStrangers(d *stepDraft, via string) {
	if d.IsHTTP() {
		checkHost(d, via)
		return
	}
	run := d.at.Child("run", d.at.Node.Get("run"))
	if len(d.Texts.Run) == 0 || len(d.Texts.Run) != len(run.Node.Items) {
		return // something is wrong with it already
	}
	c := commandLine{run: d.Texts.Run, foreignStdin: d.Texts.Stdin != nil && d.Texts.Stdin.Foreign(), bad: map[int]string{}}
	c.judge()
	for _, i := range slices.Sorted(maps.Keys(c.bad)) {
		at := d.at.Child("stdin", d.at.Node.Get("stdin"))
		if i != readsIt {
			at = run.Index(i)
		}
		at.Bad("%s%s", c.bad[i], via)
	}
	checkEnv(d, via)
}

// notifyCommand is the command of a notifier and its place.
type notifyCommand struct {
	at  strictyaml.Place
	run []*template.Text
}

// checkMessageCommand does the same for the command of a notifier. It reads the whole
// message.
func checkMessageCommand(n notifyCommand) {
	if len(n.run) == 0 || len(n.run) != len(n.at.Node.Items) {
		return
	}
	c := commandLine{run: n.run, foreignStdin: true, bad: map[int]string{}}
	c.judge()
	for _, i := range slices.Sorted(maps.Keys(c.bad)) {
		at := n.at
		if i != readsIt {
			at = at.Index(i)
		}
		at.Bad("%s (with nip90 in the file, a message may quote what a job has said)", c.bad[i])
	}
}

// loaders are variables by which a program is told what else to run, or where to
// find it. A name that ends in * stands for all that begin so.
var loaders = []string{
	"BASH_ENV", "BASH_FUNC_*", "DYLD_*", "EDITOR", "ENV", "GIT_*", "IFS", "JAVA_TOOL_OPTIONS", "LD_*", "LESSOPEN", "LUA_INIT", "NODE_OPTIONS", "PAGER",
	"PATH", "PERL5*", "PROMPT_COMMAND", "PS4", "PYTHON*", "RUBY*", "SHELL", "SHELLOPTS", "VISUAL", "ZDOTDIR",
}

func isLoader(name string) bool {
	return slices.ContainsFunc(loaders, func(s string) bool {
		start, all := strings.CutSuffix(s, "*")
		return name == s || all && strings.HasPrefix(name, start)
	})
}

// checkEnv refuses a template in a variable that says what to run.
func checkEnv(d *stepDraft, via string) {
	for _, e := range d.Texts.Env {
		if !e.Text.Foreign() || !isLoader(e.Name) {
			continue
		}
		at := d.at // it is the workflow's, unless the step has it
		if env := at.Node.Get("env"); env != nil && env.Get(e.Name) != nil {
			at = at.Child("env", env).Child(e.Name, env.Get(e.Name))
		}
		at.Bad("a template can't be the value of %s, which says what programs run: whoever asks for a job could choose it%s", e.Name, via)
	}
}

// checkHost refuses a template before the path of a URL.
func checkHost(d *stepDraft, via string) {
	if d.Texts.URL == nil || d.Provider != "" || !d.Texts.URL.Foreign() {
		return // the provider says which host
	}
	masked := template.MarkParts(d.Texts.URL.Source())
	if _, rest, ok := strings.Cut(masked, "://"); ok {
		masked = rest
	}
	if i := strings.IndexAny(masked, "/?#"); i >= 0 {
		masked = masked[:i]
	}
	if strings.Contains(masked, template.FillMark) || strings.Contains(masked, "{{") {
		method, http := strings.ToLower(d.Method), d.at.Child("http", d.at.Node.Get("http"))
		http.Child(method, http.Node.Get(method)).Bad("a template can't say which host is asked: whoever asks for a job could choose it%s", via)
	}
}
