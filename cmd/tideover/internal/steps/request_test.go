package steps

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/secret"
)

// A body with many secrets becomes shorter than the limit when they are masked. If the part
// that is read ends inside a secret, that beginning of the secret must not be kept.
func TestABodyIsNotCutInsideASecret(t *testing.T) {
	t.Parallel()
	r := &Runner{Redactor: new(secret.Redactor)}
	r.Redactor.Add("hush-hush-key")
	for body, want := range map[string]string{
		"short":                               "short",
		"it is hush-hush-key, it is":          "it is ***, it is",
		strings.Repeat("hush-hush-key ", 10):  "*** *** *** *** *** *** *** ",
		strings.Repeat("x", 200):              strings.Repeat("x", 50),
		strings.Repeat("x", 45) + "hush-hush": strings.Repeat("x", 45) + "hush-",
	} {
		kept, ended, err := r.read(strings.NewReader(body), 50)
		text, over := beginning(kept)
		if over = over || !ended; err != nil || text != want || over != (len(body) > 50) {
			t.Errorf("read(%.30q) = %q, over %v, %v, want %q", body, text, over, err, want)
		}
	}
}

func TestThePolicyMayGiveARequestMoreTime(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			ctx, want := t.Context(), requestTimeout
			if limit > 0 {
				limited, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				ctx, want = limited, limit
			}
			ctx, cancel := withTimeout(ctx)
			defer cancel()
			if at, _ := ctx.Deadline(); time.Until(at) != want {
				t.Errorf("with a limit of %v, a request has %v", limit, time.Until(at))
			}
		})
	}
}

func TestDescribeRequest(t *testing.T) {
	t.Parallel()
	r := &Runner{Redactor: new(secret.Redactor)}
	r.Redactor.Add("hush-hush key", "https://user:pw@hooks.example/T0/hush")
	long := "http://a/" + strings.Repeat("x", 400)
	for _, c := range []struct{ target, provider, text, inError string }{
		{"http://a:80/uplod/1.json", "", "PUT http://a:80/uplod/1.json", `(PUT "http://a:80/uplod/1.json")`},
		{"/v1/files", "acme", "PUT /v1/files of provider acme", `(PUT "/v1/files" of provider acme)`},
		{"http://a/b?sig=1#c", "", "PUT http://a/b?…", `(PUT "http://a/b?…")`},
		{"http://me:pw@a/b@c", "", "PUT http://a/b@c", `(PUT "http://a/b@c")`},
		{"http://a/hush-hush key", "", "PUT http://a/***", `(PUT "http://a/***")`},
		{"http://a/hush-hush%20key/b", "", "PUT http://a/***/b", `(PUT "http://a/***/b")`},
		{"https://user:pw@hooks.example/T0/hush", "", "PUT ***", `(PUT "***")`},
		{long, "", "PUT " + long[:maxTarget] + "…", `(PUT "` + long[:maxTarget] + `…")`},
	} {
		got := r.describeRequest(&Step{Method: "PUT", Provider: c.provider}, c.target)
		if got.text() != c.text || got.String() != c.inError {
			t.Errorf("describeRequest(%.50q) = %q and %q, want %q and %q", c.target, got.text(), got, c.text, c.inError)
		}
	}
}

func TestCommandLine(t *testing.T) {
	t.Parallel()
	r := &Runner{Redactor: new(secret.Redactor)}
	r.Redactor.Add("hush-hush key")
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{"cat", "orders.txt"}, "cat orders.txt"},
		{[]string{"sh", "-c", "echo it's; exit 3", ""}, `sh -c 'echo it'\''s; exit 3' ''`},
		{[]string{"curl", "-H", "Authorization: hush-hush key"}, "curl -H 'Authorization: ***'"},
		{[]string{"a", "\xff"}, "a '\uFFFD'"},
		{[]string{strings.Repeat("x", 5000)}, strings.Repeat("x", maxCommandLine) + "…"},
	} {
		if got := r.commandLine(c.argv); got != c.want {
			t.Errorf("commandLine(%.50q) = %q, want %q", c.argv, got, c.want)
		}
	}
}
