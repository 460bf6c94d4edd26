//go:build unix

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/retryhttp"
)

// settings has a valid value for every key of a policy.
var settings = map[string]string{
	"base": "2s", "cap": "1m", "factor": "3", "max-doublings": "4", "jitter": "full", "attempts": "4",
	"attempt-timeout": "1m", "total-timeout": "1h", "throttle-base": "3s", "server-wait": "1m", "server-slack": "1s",
	"reset-after": "1m", "budget": "ratio(0.2)", "hedge": "p95",
}

// runners has a function for each runner in the table of docs/policy.md. It returns the error of
// the runner for a policy.
var runners = map[string]func(retry.Policy) error{
	"`retry.New`": func(p retry.Policy) error { _, err := retry.New(p); return err },
	"`retry.NewHedger`": func(p retry.Policy) error {
		if p.Hedge == (retry.Hedge{}) {
			p.Hedge.Percentile = 95 // a Hedger requires a hedge
		}
		_, err := retry.NewHedger(p)
		return err
	},
	"`retryhttp.New`": func(p retry.Policy) error { _, err := retryhttp.New(p, nil); return err },
	"`tideover exec`": func(p retry.Policy) error {
		o := execOptions{policyText: p.String()}
		return o.resolve()
	},
	"`engine.Step`, HTTP steps": func(p retry.Policy) error {
		do := func(context.Context, int) (int, error) { return 0, nil }
		_, err1 := engine.NewWorkflow("w", engine.Step("s", do, engine.WithPolicy(p)))
		_, err2 := config.Load(config.Source{Environ: []string{"HOME=/home/x"}, Data: fmt.Appendf(nil,
			"version: 1\nworkflows: {w: {steps: [{id: s, http: {get: http://localhost/}, policy: %q}]}}\n", p)})
		if (err1 == nil) != (err2 == nil) {
			return fmt.Errorf("they disagree: %w, %w", err1, err2)
		}
		return errors.Join(err1, err2)
	},
	"providers of the gateway": func(p retry.Policy) error {
		_, err := config.Load(config.Source{Environ: []string{"HOME=/home/x"}, Data: fmt.Appendf(nil,
			"version: 1\nproviders: {p: {base-url: 'http://localhost/', policy: %q}}\n", p)})
		return err
	},
	"sessions": func(p retry.Policy) error {
		_, err := config.Load(config.Source{Environ: []string{"HOME=/home/x"}, Data: fmt.Appendf(nil,
			"version: 1\nsessions: {s: {start: [x], policy: %q}}\n", p)})
		return err
	},
	"command steps": func(p retry.Policy) error {
		_, err := config.Load(config.Source{Environ: []string{"HOME=/home/x"}, Data: fmt.Appendf(nil,
			"version: 1\nworkflows: {w: {steps: [{id: s, run: [x], policy: %q}]}}\n", p)})
		return err
	},
}

// The table in the documentation matches the code: for every key and every runner, the key is
// honoured or rejected by name.
func TestKeysAndRunners(t *testing.T) {
	t.Parallel()
	header, rows := keyTable(t)
	if len(header) != len(runners) {
		t.Errorf("the table has the runners %v", header)
	}
	var listed []string
	for _, row := range rows {
		key := row[0]
		listed = append(listed, key)
		p, err := retry.Parse("exponential(1s) attempts=2")
		if err == nil {
			p, err = p.With(key, settings[key])
		}
		if err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		for i, runner := range header {
			build, ok := runners[runner]
			if !ok {
				t.Fatalf("no test for the runner %s", runner)
			}
			switch err, says := build(p), row[i+1]; {
			case says == "yes" && err != nil:
				t.Errorf("%s with %s=%s: %v, but the table says it is honoured", runner, key, settings[key], err)
			case says == "refused" && (err == nil || !strings.Contains(err.Error(), fmt.Sprintf("can't honour %s=", key))):
				t.Errorf("%s with %s=%s: %v, but the table says it is refused", runner, key, settings[key], err)
			case says != "yes" && says != "refused":
				t.Errorf("%s, %s: the table says %q", runner, key, says)
			}
		}
	}
	if !slices.Equal(listed, retry.Keys()) {
		t.Errorf("the table lists %v, the keys are %v", listed, retry.Keys())
	}
}

// keyTable reads the table below "Who honours what" in docs/policy.md.
func keyTable(t *testing.T) (header []string, rows [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## Who honours what\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		switch {
		case len(cells) < 2 || strings.HasPrefix(cells[0], "---"):
		case header == nil:
			header = cells[1:]
		default:
			rows = append(rows, cells)
		}
	}
	return header, rows
}
