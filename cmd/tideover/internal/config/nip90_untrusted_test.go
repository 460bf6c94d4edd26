package config_test

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

// TestWhatStrangersMaySay uses templates with text of a job in places where they are
// harmless. The loader must accept them.
func TestWhatStrangersMaySay(t *testing.T) {
	t.Parallel()
	for _, does := range []string{
		`run: [agent, "{{ .input.task }}"]`,
		`run: [agent, --, "{{ .input.task }}"]`,
		`run: [sh, -c, 'agent "$1"', sh, "{{ .input.task }}"]`,
		`run: [bash, -euo, pipefail, -c, 'agent "$1"', sh, "{{ .input.task }}"]`,
		`run: [bash, --norc, -O, extglob, ./agent.sh, "{{ .input.task }}"]`,
		`run: [sh, -s, "{{ .input.task }}"], stdin: 'agent "$1"'`,
		`run: [sh, -c, agent], stdin: "{{ .input.task }}"`,
		`run: [sh, -c, agent], env: {TASK: "{{ .input.task }}"}`,
		`run: [sh, -c, "agent {{ .run.id }} {{ .run.attempt }}"]`,
		`run: [sh]`,
		`run: [env, "TASK={{ .input.task }}", agent]`,
		`run: [timeout, "5", agent, "{{ .input.task }}"]`,
		`run: [nice, -n, "5", sudo, -u, agent, agent, --, "{{ .input.task }}"]`,
		`run: [python3, ./agent.py, "{{ .input.task }}"]`,
		`run: [python3, -c, "import sys; print(sys.argv[1])", "{{ .input.task }}"]`,
		`run: [python3, -m, agent, "{{ .input.task }}"]`,
		`run: [python3, agent.py], stdin: "{{ .input.task }}"`,
		`run: [perl, -ne, "print"], stdin: "{{ .input.task }}"`,
		`run: [awk, -v, "task={{ .input.task }}", "BEGIN { print task }"]`,
		`run: [ssh, host, agent], stdin: "{{ .input.task }}"`,
		`run: [find, ., -name, "{{ .input.task }}"]`,
		`run: [agent, "-count={{ .input.task }}"]`,
		`http: {get: "https://a.example/{{ urlquery .input.task }}"}`,
		`http: {get: "https://a.example?q={{ urlquery .input.task }}"}`,
		`http: {post: "${env:HOOK_URL}/{{ .input.id }}", body: "{{ .input.task }}"}`,
		`http: {provider: openai, post: "/v1/{{ .input.id }}"}`,
	} {
		file := strings.Replace(jobsFile, "run: [x]", does, 1) + "providers: {openai: }\n"
		if _, err := config.Load(config.Source{Path: "x.yaml", Data: []byte(file), Environ: environ}); err != nil {
			t.Errorf("%s\n%v", does, err)
		}
		file = strings.Replace(jobsFile, "run: [x]", "workflow: w", 1) + "providers: {openai: }\nworkflows: {w: {steps: [{id: a, " + does + "}]}}\n"
		if _, err := config.Load(config.Source{Path: "x.yaml", Data: []byte(file), Environ: environ}); err != nil {
			t.Errorf("in a workflow: %s\n%v", does, err)
		}
	}
}

// TestWhatIsOursMayStandInAScript checks that a script may contain templates of values that
// the sender of a job can't choose, and no others.
func TestWhatIsOursMayStandInAScript(t *testing.T) {
	t.Parallel()
	const rest = "workflows: {w: {steps: [{id: a, run: [x]}, {id: b, needs: [a], run: [sh, -c, 'echo %']}]}}\n"
	for use, fine := range map[string]bool{
		`{{ .run.id }}`: true, `{{ .schedule.time }}`: true, `{{ .steps.a.exit }}`: true, `{{ (step "a").status }}`: true, `{{ index .steps "a" "exit" }}`: true,
		`{{ with .run.id }}{{ . }}{{ end }}`: true, `{{ $x := .run.id }}{{ $x }}`: true, `{{ "a" | upper }}`: true,
		`{{ .input }}`: false, `{{ .input.task }}`: false, `{{ $.input.task }}`: false, `{{ index . "input" }}`: false, `{{ index $ "input" }}`: false,
		`{{ json .run }}`: false, `{{ index .run "error" }}`: false, `{{ .run.key }}`: false, `{{ .steps.a.stderr }}`: false, `{{ json .steps }}`: false,
		`{{ (index .steps "a").stdout }}`: false, `{{ range .steps }}{{ .stdout }}{{ end }}`: false, `{{ $x := . }}{{ $x.input }}`: false,
		`{{ (step .run.id).exit }}`: false, `{{ with .run }}{{ .error }}{{ end }}`: false, `{{ if .input.task }}a{{ end }}`: false,
	} {
		file := strings.Replace(jobsFile, "run: [x]", "workflow: w", 1) + strings.Replace(rest, "%", use, 1)
		_, err := config.Load(config.Source{Path: "x.yaml", Data: []byte(file), Environ: environ})
		switch {
		case fine && err != nil:
			t.Errorf("%s is refused: %v", use, err)
		case !fine && (err == nil || !strings.Contains(err.Error(), `(step "b" is reached from nip90.kinds.5900)`)):
			t.Errorf("%s: Check = %v, want that step b is refused", use, err)
		}
	}
}
