package server

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/internal/secret"
)

func TestIgnoredSettings(t *testing.T) {
	t.Parallel()
	const text = `version: 1
server: {listen: 127.0.0.1:7901, data: DIR}
gateway: {listen: 127.0.0.1:7902}
providers: {plain: {base-url: http://127.0.0.1:9}}
workflows: {order: {steps: [{id: a, run: [echo]}]}}
`
	load := func(text string) *config.Config {
		t.Helper()
		cfg, err := config.Load(config.Source{Data: []byte(strings.Replace(text, "DIR", t.TempDir(), 1)), Redactor: new(secret.Redactor)})
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	cfg := load(text)
	got := strings.Join(ignoredSettings(cfg, true), "\n")
	for _, part := range []string{"server.listen (", "is ignored: tideover gateway listens at gateway.listen, which is 127.0.0.1:7902", "workflows is ignored by tideover gateway"} {
		if !strings.Contains(got, part) {
			t.Errorf("a gateway: %q, want %q in it", got, part)
		}
	}
	if got := ignoredSettings(cfg, false); len(got) != 1 || !strings.HasPrefix(got[0], "gateway.listen (") {
		t.Errorf("serve: %q", got)
	}
	if got := ignoredSettings(load("version: 1\nserver: {data: DIR}\n"), true); len(got) != 0 {
		t.Errorf("without these settings: %q", got)
	}
}
