package config_test

import (
	"fmt"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/engine"
)

func TestMaxLost(t *testing.T) {
	t.Parallel()
	text := `version: 1
workflows:
  plain:
    steps: [{id: a, run: ["true"]}]
  own:
    max-lost: 5
    steps: [{id: a, run: ["true"]}, {id: b, run: ["true"], max-lost: 0}, {id: c, http: {get: "https://a.example"}, max-lost: 9}]
`
	cfg, err := config.Load(config.Source{Path: "x.yaml", Data: []byte(text), Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	of := func(workflow string) (list []int) {
		for _, s := range cfg.Workflows[workflow].Steps {
			list = append(list, s.MaxLost)
		}
		return list
	}
	if got := of("plain"); fmt.Sprint(got) != fmt.Sprint([]int{engine.DefaultMaxLost}) {
		t.Errorf("without max-lost the steps have %v, want the engine's default", got)
	}
	if got := of("own"); fmt.Sprint(got) != "[5 0 9]" {
		t.Errorf("the steps have %v, want that of the workflow, and their own", got)
	}
}
