//go:build unix

package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"--version"}} {
		if got := tideover(t, args...); got.code != 0 || !strings.HasPrefix(got.out, "tideover ") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	var b build
	if got := tideover(t, "version", "--json"); json.Unmarshal([]byte(got.out), &b) != nil || b.Version == "" || b.Go == "" {
		t.Errorf("version --json: %+v", got)
	}
}

func TestPolicyErrorsLeadToTheHelpOnPolicies(t *testing.T) {
	t.Parallel()
	help := tideover(t, "help", "policy")
	wantCode(t, help, 0)
	for _, args := range [][]string{{"plan", "htpp"}, {"exec", "--policy", "htpp", "--", "true"}} {
		got := tideover(t, args...)
		wantCode(t, got, codeOwn)
		wantIn(t, "stderr", got.stderr, "See 'tideover help policy'.")
	}
	file := filepath.Join(t.TempDir(), "t.yaml")
	write(t, file, "version: 1\nproviders: {openai: {polcy: http}}\n")
	got := tideover(t, "config", "check", file)
	wantCode(t, got, codeOwn)
	wantIn(t, "stderr", got.stderr, "See 'tideover config check --help'.") // not the help about policies: the wrong word is a key
	for _, part := range []string{"exponential(D[..CAP])", "total-timeout", "http-conservative"} {
		wantIn(t, "help policy", help.out, part)
	}
}

func TestForgottenQuotesAndShellsAreRecognised(t *testing.T) {
	t.Parallel()
	got := tideover(t, "exec", "--policy", "fixed(1ms)", "attempts=3", "--", "true")
	wantCode(t, got, codeOwn)
	wantIn(t, "stderr", got.stderr, `in quotes: "fixed(1ms) attempts=3"`)
	got = tideover(t, "exec", "--", "ls | wc")
	wantCode(t, got, 127)
	wantIn(t, "stderr", got.stderr, "use sh -c")
	got = tideover(t, "plan", "--svg", "http")
	wantCode(t, got, codeOwn)
	wantIn(t, "stderr", got.stderr, `"http" is a policy`)
}
