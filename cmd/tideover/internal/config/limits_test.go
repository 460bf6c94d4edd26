package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

// TestLargeFilesAreBounded loads files that are designed to make the loader slow. It has
// no deadline of its own: if the loader hangs, the timeout of go test ends it.
func TestLargeFilesAreBounded(t *testing.T) {
	many := func(n int, format string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, format, i)
		}
		return b.String()
	}
	for name, text := range map[string]string{
		"keys":             "version: 1\n" + many(6_000, "k%d: 1\n"),
		"brackets":         "version: " + strings.Repeat("[", 31_000),
		"dashes":           "version: " + strings.Repeat("- ", 31_000),
		"questions":        strings.Repeat("? ", 31_000),
		"long line":        "version: 1\nserver: {" + strings.Repeat("x, ", 3000) + "y: " + strings.Repeat("z", 300_000) + "}",
		"literal secrets":  "version: 1\nworkflows: {w: {env: {" + many(800, "A%d_TOKEN: secret-%[1]d, ") + "}, steps: [{id: a, run: [x]}]}}",
		"wrong needs":      "version: 1\nworkflows:\n  w:\n    steps:\n" + many(400, "      - {id: s%d, run: [x], needs: [t%[1]d, s1, s2, u]}\n"),
		"wrong fallbacks":  "version: 1\nproviders:\n" + many(400, "  p%d: {base-url: 'https://a.example', fallback: [q%[1]d, r%[1]d]}\n"),
		"wrong providers":  "version: 1\nproviders:\n" + many(600, "  p%d: {rate: 1, breaker: 2}\n"),
		"literal keys":     "version: 1\nproviders: {openai: {auth: [" + many(400, "secret-%d, ") + "]}}",
		"aliases of texts": "version: 1\nworkflows:\n  w:\n    description: &d " + strings.Repeat("x", 100_000) + "\n    input: [" + strings.Repeat("*d, ", 2000) + "]\n",
		"merges":           "version: 1\nserver: &s {" + many(800, "a%d: 1, ") + "}\nworkflows:\n" + many(150, "  w%d: {<<: *s}\n"),
		"templates":        "version: 1\nworkflows: {w: {steps: [{id: a, run: [x, '" + strings.Repeat("{{(", 20_000) + "']}]}}",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Load(config.Source{Path: "x.yaml", Data: []byte(text[:min(len(text), 1<<20)]), Environ: environ})
			if err == nil || len(err.Error()) > 100_000 {
				t.Errorf("Check returned an error of %d bytes", len(fmt.Sprint(err)))
			}
		})
	}
}
