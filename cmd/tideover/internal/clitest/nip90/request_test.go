//go:build unix

package nip90_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/nostr"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestARequestIsAnswered(t *testing.T) {
	t.Parallel()
	j := newFakeProvider(t)
	cmd, out, stderr := j.start("--timeout", "2s", "--input", "a,b", "--param", "lang=de", "add 1 and 1")
	r := j.request()
	if r.Task != "add 1 and 1" || r.Timeout != 2*time.Second || fmt.Sprint(r.Inputs, r.Params) != "[{a,b text  }] [{lang [de]}]" || fmt.Sprint(r.Relays) != "["+j.relay.URL()+"]" {
		t.Errorf("the request is %+v", r)
	}
	list := j.answers(r, succeeded(r, "2 \x1b[31mred"))
	j.inject(append(list, list...)...)
	got := ended(cmd, out, stderr)
	clitest.WantCode(t, got, 0)
	if got.Out != "2 \x1b[31mred" {
		t.Errorf("stdout = %q, want the result as it is", got.Out)
	}
	for _, part := range []string{
		"no --key", "request " + r.ID[:8] + " accepted by 1 of 1 relay\n", "processing: Started\n",
		"processing: Retry 1/3 after error: Operation timed out after 2000ms (next in 1s)\n", "processing: Retry 2/3 after error: connection refused (next in 2s)\n",
	} {
		if n := strings.Count(got.Stderr, part); n != 1 {
			t.Errorf("%q is there %d times, want once; stderr %q", part, n, got.Stderr)
		}
	}
	if strings.Index(got.Stderr, "Retry 1/3") > strings.Index(got.Stderr, "Retry 2/3") {
		t.Errorf("the retries are out of order: %q", got.Stderr)
	}
}

func TestOnlyTheProvidersWordCounts(t *testing.T) {
	t.Parallel()
	j := newFakeProvider(t)
	cmd, out, stderr := j.start("do it")
	r := j.request()
	truth := j.answers(r, succeeded(r, "true"))
	forged := *truth[len(truth)-1]
	forged.Content = "forged"
	forged.ID = fmt.Sprintf("%x", forged.Hash())
	stranger := nostr.Event{Kind: 6900, CreatedAt: r.Created.Unix(), Content: "stranger", Tags: nostr.Tags{{"e", r.ID}, {"status", "success"}}}
	other, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Sign(other); err != nil {
		t.Fatal(err)
	}
	j.inject(&forged, &stranger)
	j.inject(truth...)
	got := ended(cmd, out, stderr)
	clitest.WantCode(t, got, 0)
	if got.Out != "true" {
		t.Errorf("stdout = %q, want what the provider signed", got.Out)
	}
}

func TestARequestAsJSON(t *testing.T) {
	t.Parallel()
	j := newFakeProvider(t)
	cmd, out, stderr := j.start("--json", "do it")
	r := j.request()
	j.inject(j.answers(r, failed(r))...)
	got := ended(cmd, out, stderr)
	clitest.WantCode(t, got, 124)
	var types []string
	var last map[string]any
	for line := range strings.Lines(got.Out) {
		last = nil
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		types = append(types, fmt.Sprint(last["type"]))
		if last["request"] != r.ID {
			t.Errorf("a line is not about the request: %s", line)
		}
	}
	if want := "[sent feedback feedback feedback feedback result end]"; fmt.Sprint(types) != want {
		t.Errorf("lines %v, want %s", types, want)
	}
	for _, part := range []string{
		`"relays":[{"relay":"` + j.relay.URL() + `","state":"acknowledged"}]`, `"retry":{"number":1,"of":2,"wait_ms":1000}`, `"status":"error"`,
		`"error":{"code":"TIMEOUT","message":"Operation timed out after 30000ms","retry":{"attemptNumber":2,"maxRetries":2,"lastError":"Operation timed out after 30000ms","backoffHistory":[1000,2000]}}`,
		`"ending":"error","code":124`,
	} {
		clitest.WantIn(t, "stdout", got.Out, part)
	}
}

func TestATaskFromAPipeWithAKeyAndDetached(t *testing.T) {
	t.Parallel()
	j := newFakeProvider(t)
	file := filepath.Join(t.TempDir(), "key")
	made := clitest.Run(t, "nip90", "keygen", "--out", file)
	clitest.WantCode(t, made, 0)
	cmd := j.command("--key-file", file, "--detach", "--kind", "5050", "-")
	cmd.Stdin = strings.NewReader("from a pipe\n")
	got := clitest.Finish(t, cmd)
	clitest.WantCode(t, got, 0)
	r := j.request()
	if r.Task != "from a pipe\n" || r.Kind != 5050 || nostr.Npub(r.Customer)+"\n" != made.Out || got.Out != r.ID+"\n" {
		t.Errorf("stdout %q for the request %+v by %s", got.Out, r, made.Out)
	}
}

func TestOnATerminalAResultCantDoAnything(t *testing.T) {
	t.Parallel()
	j := newFakeProvider(t)
	s := clitest.OnTerminal(t, j.command("do it").Args[1:]...)
	r := j.request()
	j.inject(j.feedback(r, "processing", "hash\x1b]0;owned\x07ing", nostr.Tag{"progress", "40"}, nostr.Tag{"eta", "90"}))
	s.Expect(`[########............] 40%, eta 1m30s, hash\x1b]0;owned\x07ing`)
	j.inject(j.answers(r, succeeded(r, "one\x1b[2J\ntwo"))...)
	s.Expect(`one\x1b[2J` + "\r\ntwo")
	s.WantCode(0)
}

func TestBadRequestsAreNotSent(t *testing.T) {
	t.Parallel()
	j := newFakeProvider(t)
	npub := nostr.Npub(j.provider.PublicKey())
	relay := []string{"--relay", j.relay.URL()}
	to := append(relay, "--to", npub)
	big := filepath.Join(t.TempDir(), "big")
	if err := os.WriteFile(big, []byte(strings.Repeat("x", nostr.MaxContent+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no relay", []string{"--to", npub, "x"}, "--relay: no relay given"},
		{"no websocket", []string{"--relay", "https://example.com", "--to", npub, "x"}, "--relay[0]: want "},
		{"a relay twice", append(to, "--relay", j.relay.URL()+"/", "x"), "--relay[1]: the same as --relay[0]"},
		{"no provider", append(relay, "x"), "--to: no provider given"},
		{"a secret key as the provider", append(relay, "--to", j.provider.Reveal(), "x"), "--to: public key: this is a secret key"},
		{"no task", to, "request: no task given"},
		{"two tasks", append(to, "a", "b"), "want one task"},
		{"an empty task", append(to, ""), "the task is empty"},
		{"a long task", append(to, "-"), "want at most 65536 bytes"},
		{"a kind of results", append(to, "--kind", "6900", "x"), "--kind: 6900 is not in the range 5000 to 5999"},
		{"a timeout of 0.5s", append(to, "--timeout", "500ms", "x"), "--timeout: "},
		{"a timeout of 0", append(to, "--timeout", "0s", "x"), "--timeout: "},
		{"a negative timeout", append(to, "--timeout", "-5s", "x"), "--timeout: "},
		{"a timeout twice", append(to, "--timeout", "5s", "--timeout", "6s", "x"), "given twice: give it once"},
		{"a wait of 0", append(to, "--wait", "0s", "x"), "--wait: "},
		{"a key on the command line", append(to, "--key", j.provider.Reveal(), "x"), "--key: not a reference"},
		{"a key that is not there", append(to, "--key", "${env:NO_SUCH_KEY}", "x"), "the variable NO_SUCH_KEY is not set"},
		{"a key that is none", append(to, "--key-file", big, "x"), "--key-file: "},
		{"two keys", append(to, "--key-file", big, "--key", "${env:HOME}", "x"), "give one of them"},
		{"an input that is no address", append(to, "--input", "x,url", "x"), "--input: "},
		{"a parameter without a value", append(to, "--param", "x", "x"), "--param: "},
		{"detached and waiting", append(to, "--detach", "--wait", "1s", "x"), "--detach and --wait"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cmd, _ := clitest.Command(t, append([]string{"nip90", "request"}, c.args...)...)
			stdin, err := os.Open(big)
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			cmd.Stdin = stdin
			got := clitest.Finish(t, cmd)
			clitest.WantCode(t, got, 125)
			clitest.WantIn(t, "stderr", got.Stderr, c.want)
			if strings.Contains(got.Stderr, j.provider.Reveal()) {
				t.Errorf("the secret key was printed: %q", got.Stderr)
			}
			if n := len(j.relay.Events()); n != 0 {
				t.Errorf("%d events were sent", n)
			}
		})
	}
}
