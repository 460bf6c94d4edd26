package config_test

import (
	"fmt"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
)

func ExampleLoad() {
	cfg, err := config.Load(config.Source{
		Path: "/etc/tideover.yaml",
		Data: []byte(`version: 1
workflows:
  hello:
    steps:
      - {id: greet, run: [echo, "hello {{ .input.who }}"], env: {TOKEN: "${env:TOKEN}"}}
`),
		Environ: []string{"HOME=/home/me", "TOKEN=s3cr3t"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	step := cfg.Workflows["hello"].Steps[0]
	data := steps.Data{Input: map[string]any{"who": "world"}, Secrets: cfg.Secrets()}
	argv, err := step.Argv(data)
	fmt.Printf("%q %v\n", argv, err)
	env, err := step.Env(data)
	fmt.Println(env, err)
	// Output:
	// ["echo" "hello world"] <nil>
	// [{TOKEN ***}] <nil>
}

func ExampleConfig_ProviderSpecs() {
	cfg, err := config.Load(config.Source{
		Path: "/etc/tideover.yaml",
		Data: []byte(`version: 1
providers:
  anthropic:
    auth: [ "${env:FIRST}", {name: work, key: "${env:SECOND}", account: company} ]
    rate: {requests: 50/min, concurrent: 8}
`),
		Environ: []string{"HOME=/home/me", "FIRST=s3cr3t", "SECOND=s3cr3t-too"},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	specs, err := cfg.ProviderSpecs()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, s := range specs {
		fmt.Println(s.Name, s.BaseURL, s.Rate, s.Keys)
	}
	// Output:
	// anthropic https://api.anthropic.com 50/min [{key-1 *** } {work *** company}]
}
