//go:build unix

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// errorOf returns the error that a command has printed with --json, which must be all of its output.
func errorOf(t *testing.T, got clitest.Outcome) jsonError {
	t.Helper()
	var e struct {
		Error *jsonError `json:"error"`
	}
	if err := json.Unmarshal([]byte(got.Stderr), &e); err != nil || e.Error == nil {
		t.Fatalf("stderr = %q is not an error in JSON: %v", got.Stderr, err)
	}
	if got.Out != "" || e.Error.ExitCode != got.Code {
		t.Errorf("stdout = %q, exit code %d; the error is %+v", got.Out, got.Code, *e.Error)
	}
	return *e.Error
}

func TestErrorsInJSON(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		args     []string
		code     string
		contains string
	}{
		{"a flag before --json", []string{"runs", "--frobnicate", "--json"}, jsonUsage, "unknown flag --frobnicate"},
		{"a flag before -j", []string{"runs", "--limit", "x", "-j"}, jsonUsage, "--limit"},
		{"a value", []string{"runs", "-j", "--state", "waitng"}, jsonUsage, `did you mean "waiting"?`},
		{"an argument", []string{"show", "--json"}, jsonUsage, "no run given"},
		{"no server", []string{"runs", "--json", "--server", "unix:/nowhere/tideover.sock"}, jsonNoServer, "/nowhere/tideover.sock"},
		{"exec without --dry-run", []string{"exec", "--json", "--", "true"}, jsonUsage, "--json needs --dry-run"},
		{"a policy", []string{"exec", "--json", "--dry-run", "-p", "htp"}, jsonUsage, `did you mean "http"?`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			got := clitest.Run(t, tt.args...)
			clitest.WantCode(t, got, CodeOwn)
			e := errorOf(t, got)
			if e.Code != tt.code || !strings.Contains(e.Message, tt.contains) {
				t.Errorf("error = %+v, want the code %s and %q", e, tt.code, tt.contains)
			}
		})
	}
	// --json of another command is not that of tideover.
	got := clitest.Run(t, "exec", "--policy", "htp", "echo", "--json")
	clitest.WantIn(t, "stderr", got.Stderr, "tideover: --policy: ")
}

func TestConfigCheckInJSON(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "t.yaml")
	check := func(text string, code int) (out configCheck) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		got := clitest.Run(t, "config", "check", "--json", file)
		clitest.WantCode(t, got, code)
		if err := json.Unmarshal([]byte(got.Out), &out); err != nil || got.Stderr != "" {
			t.Fatalf("%v: stdout = %q, stderr = %q", err, got.Out, got.Stderr)
		}
		return out
	}
	good := check("version: 1\nworkflows:\n  order:\n    steps:\n      - {id: a, run: [echo]}\n", 0)
	if !good.Valid || good.File != file || good.Contents["workflows"] != 1 || len(good.Errors) != 0 {
		t.Errorf("a valid file: %+v", good)
	}
	bad := check("version: 1\nworkflow: {}\n", CodeFailed)
	if bad.Valid || len(bad.Errors) != 1 || bad.Errors[0].Line != 2 || !strings.Contains(bad.Errors[0].Message, `did you mean "workflows"?`) {
		t.Errorf("an invalid file: %+v", bad)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	got := clitest.Run(t, "config", "check", "-j", file)
	clitest.WantCode(t, got, CodeOwn)
	clitest.WantIn(t, "stdout", got.Out, `"valid":false`)
}

func TestPlansInJSON(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"plan", "http", "--json"}, {"exec", "--policy", "http", "--dry-run", "-j"}} {
		got := clitest.Run(t, args...)
		clitest.WantCode(t, got, 0)
		var out struct {
			Plans []struct {
				Name    string
				Retries []struct {
					Delay int64 `json:"delay_ns"`
				}
			}
		}
		if err := json.Unmarshal([]byte(got.Out), &out); err != nil || len(out.Plans) != 1 || out.Plans[0].Name != "http" || out.Plans[0].Retries[0].Delay != 1e9 {
			t.Errorf("%q: %v, %+v", args, err, out)
		}
	}
}

func TestMistypedNamesGetASuggestion(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"runs", "--state", "ded"}, `unknown state "ded"; did you mean "dead"?`},
		{[]string{"runs", "--state", "frobnicated"}, `unknown state "frobnicated": want one of scheduled`},
		{[]string{"events", "--kind", "gaveup"}, `did you mean "gave-up"?`},
		{[]string{"gateway", "opnai"}, "did you mean openai?"},
		{[]string{"exec", "--policy", "htp-batch", "--dry-run"}, `did you mean "http-batch"?`},
		{[]string{"plan", "expnential(1s..3s)"}, `did you mean "exponential"?`},
		{[]string{"plan", "http atempts=3"}, `key "atempts" is unknown; did you mean "attempts"?`},
		{[]string{"sim", "otage"}, `did you mean "outage"?`},
	} {
		got := clitest.Run(t, tt.args...)
		clitest.WantIn(t, strings.Join(tt.args, " "), got.Stderr, tt.want)
	}
}
