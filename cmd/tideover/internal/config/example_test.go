package config_test

import (
	"fmt"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
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
	step := cfg.Workflows["hello"].Step("greet")
	data := config.Data{Input: map[string]any{"who": "world"}, Secrets: cfg.Secrets()}
	argv, err := step.Argv(data)
	fmt.Printf("%q %v\n", argv, err)
	env, err := step.Env(data)
	fmt.Println(env, err)
	// Output:
	// ["echo" "hello world"] <nil>
	// [{TOKEN ***}] <nil>
}
