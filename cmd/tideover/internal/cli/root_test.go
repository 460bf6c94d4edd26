//go:build unix

package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"version"}, {"--version"}} {
		if got := clitest.Run(t, args...); got.Code != 0 || !strings.HasPrefix(got.Out, "tideover ") {
			t.Errorf("%v: %+v", args, got)
		}
	}
	var b build
	if got := clitest.Run(t, "version", "--json"); json.Unmarshal([]byte(got.Out), &b) != nil || b.Version == "" || b.Go == "" {
		t.Errorf("version --json: %+v", got)
	}
}

func TestPolicyErrorsLeadToTheHelpOnPolicies(t *testing.T) {
	t.Parallel()
	help := clitest.Run(t, "help", "policy")
	clitest.WantCode(t, help, 0)
	for _, args := range [][]string{{"plan", "htpp"}, {"exec", "--policy", "htpp", "--", "true"}} {
		got := clitest.Run(t, args...)
		clitest.WantCode(t, got, CodeOwn)
		clitest.WantIn(t, "stderr", got.Stderr, "See 'tideover help policy'.")
	}
	file := filepath.Join(t.TempDir(), "t.yaml")
	clitest.WriteFile(t, file, "version: 1\nproviders: {openai: {polcy: http}}\n")
	got := clitest.Run(t, "config", "show", "--config", file)
	clitest.WantCode(t, got, CodeOwn)
	clitest.WantIn(t, "stderr", got.Stderr, "See 'tideover config show --help'.") // not the help about policies: the wrong word is a key
	for _, part := range []string{"exponential(D[..CAP])", "total-timeout", "http-conservative"} {
		clitest.WantIn(t, "help policy", help.Out, part)
	}
}

func TestForgottenQuotesAndShellsAreRecognised(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, "exec", "--policy", "fixed(1ms)", "attempts=3", "--", "true")
	clitest.WantCode(t, got, CodeOwn)
	clitest.WantIn(t, "stderr", got.Stderr, `in quotes: "fixed(1ms) attempts=3"`)
	got = clitest.Run(t, "exec", "--", "ls | wc")
	clitest.WantCode(t, got, 127)
	clitest.WantIn(t, "stderr", got.Stderr, "use sh -c")
	got = clitest.Run(t, "plan", "--svg", "http")
	clitest.WantCode(t, got, CodeOwn)
	clitest.WantIn(t, "stderr", got.Stderr, `"http" is a policy`)
}
