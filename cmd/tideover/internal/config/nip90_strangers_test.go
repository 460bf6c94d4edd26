package config_test

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

// TestWhatStrangersMaySay has templates at places where they are harmless.
func TestWhatStrangersMaySay(t *testing.T) {
	t.Parallel()
	for _, does := range []string{
		`run: [agent, "{{ .input.task }}"]`,
		`run: [sh, -c, 'agent "$1"', sh, "{{ .input.task }}"]`,
		`run: [bash, -euo, pipefail, -c, 'agent "$1"', sh, "{{ .input.task }}"]`,
		`run: [bash, --norc, -O, extglob, ./agent.sh, "{{ .input.task }}"]`,
		`run: [sh, -s, "{{ .input.task }}"], stdin: 'agent "$1"'`,
		`run: [sh, -c, agent], stdin: "{{ .input.task }}"`,
		`run: [sh, -c, agent], env: {TASK: "{{ .input.task }}"}`,
		`run: [sh]`,
		`http: {get: "https://a.example/{{ urlquery .input.task }}"}`,
		`http: {get: "https://a.example?q={{ urlquery .input.task }}"}`,
		`http: {post: "${env:HOOK_URL}/{{ .input.id }}", body: "{{ .input.task }}"}`,
		`http: {provider: openai, post: "/v1/{{ .input.id }}"}`,
	} {
		text := strings.Replace(jobsFile, "run: [x]", does, 1) + "providers: {openai: }\n"
		if err := config.Check(config.Source{Path: "x.yaml", Data: []byte(text), Environ: environ}); err != nil {
			t.Errorf("%s\n%v", does, err)
		}
	}
}
