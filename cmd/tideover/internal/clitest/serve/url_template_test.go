//go:build unix

package serve_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

// A user who may start runs must not be able to send the secret of a step to another host.
func TestAnInputDoesNotChooseTheHostOfARequest(t *testing.T) {
	t.Parallel()
	const token = "hush-PLANTED-of-the-step"
	var stolen, sent atomic.Pointer[string]
	record := func(to *atomic.Pointer[string]) *httptest.Server {
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			to.Store(new(r.Host + " " + r.RequestURI + " " + r.Header.Get("Authorization")))
		}))
		t.Cleanup(s.Close)
		return s
	}
	own, other := record(&sent), record(&stolen)
	ownHost, otherHost := strings.TrimPrefix(own.URL, "http://"), strings.TrimPrefix(other.URL, "http://")
	const auth = "headers: {Authorization: 'Bearer ${env:STEP_TOKEN}'}}, policy: fixed(0s) attempts=1}"
	text := fmt.Sprintf(`version: 1
workflows:
  behind: {steps: [{id: a, http: {post: "%[1]s{{ .input.path }}", %[2]s]}
  whole: {steps: [{id: a, http: {post: "{{ .input.path }}", %[2]s]}
  segment: {steps: [{id: a, http: {post: "%[1]s/a/{{ .input.path }}/b?q={{ .input.path }}", %[2]s]}
  virtual:
    steps:
      - {id: a, http: {post: "%[1]s/", headers: {Host: "{{ .input.path }}", Authorization: 'Bearer ${env:STEP_TOKEN}'}}, policy: fixed(0s) attempts=1}
`, own.URL, auth)
	s := clitest.Serve(t, text, clitest.ShortDir(t), "STEP_TOKEN="+token)
	try := func(workflow, path string) clitest.Outcome {
		sent.Store(nil)
		return s.RunCommand("run", workflow, "--wait", "--input", fmt.Sprintf("{%q: %q}", "path", path))
	}
	refused := func(workflow, path string) {
		t.Helper()
		o := try(workflow, path)
		clitest.WantCode(t, o, cli.CodeFailed)
		clitest.WantIn(t, workflow, o.Stderr, "server.allow-hosts")
	}
	accepted := func(workflow, path, want string) {
		t.Helper()
		clitest.WantCode(t, try(workflow, path), 0)
		if got := sent.Load(); got == nil || *got != want+" Bearer "+token {
			t.Errorf("%s with %q sent %v, want %s", workflow, path, got, want)
		}
	}
	refused("behind", "@"+otherHost+"/x")
	refused("whole", other.URL)
	refused("virtual", "other.example")
	accepted("behind", "/x?y=z", ownHost+" /x?y=z")
	accepted("virtual", ownHost, ownHost+" /")
	accepted("segment", "c/d?e=f@"+otherHost, ownHost+" /a/c%2Fd%3Fe=f@"+otherHost+"/b?q=c%2Fd%3Fe%3Df%40"+strings.ReplaceAll(otherHost, ":", "%3A"))
	if got := stolen.Load(); got != nil {
		t.Errorf("the other host got %s", *got)
	}

	cmd, _ := clitest.Command(t, "config", "check", "--config", s.File)
	cmd.Env = append(cmd.Environ(), "STEP_TOKEN="+token)
	check := clitest.Finish(t, cmd)
	for _, place := range []string{"behind", "whole", "virtual"} {
		clitest.WantIn(t, "config check", check.Out+check.Stderr, "workflows."+place+".steps[0].http")
	}
	if strings.Contains(check.Out+check.Stderr, "segment") {
		t.Errorf("config check warns about a template in the path: %s", check.Out+check.Stderr)
	}

	// A host that the file allows may be chosen, without a restart.
	clitest.WriteFile(t, s.File, text+"server: {allow-hosts: ['"+otherHost+"', other.example]}\n")
	testwait.Until(t, "the host is allowed", func() bool { return try("whole", other.URL+"/x").Code == 0 })
	if got := stolen.Load(); got == nil || *got != otherHost+" /x Bearer "+token {
		t.Errorf("the allowed host got %v", got)
	}
	accepted("virtual", "other.example", "other.example /")
}
