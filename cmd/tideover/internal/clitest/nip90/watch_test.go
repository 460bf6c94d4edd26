//go:build unix

package nip90_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestWatchShowsWhatPasses(t *testing.T) {
	t.Parallel()
	for _, asJSON := range []bool{false, true} {
		t.Run(fmt.Sprint("JSON ", asJSON), func(t *testing.T) {
			t.Parallel()
			j := newFakeProvider(t)
			clitest.WantCode(t, clitest.Finish(t, j.command("--detach", "paint \x1b[31mred")), 0)
			r := j.request()
			args := []string{"nip90", "watch", "--relay", j.relay.URL(), "--provider", nostr.Npub(j.provider.PublicKey())}
			if asJSON {
				args = append(args, "--json")
			}
			cmd, _ := clitest.Command(t, args...)
			cmd.Env = append(cmd.Env, "TZ=UTC")
			out, stderr := new(clitest.SyncBuffer), new(clitest.SyncBuffer)
			cmd.Stdout, cmd.Stderr = out, stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			testwait.Until(t, "the stored request", func() bool { return strings.Contains(out.String(), "paint") })
			list := j.answers(r, succeeded(r, "red\nand\x1b[2J more"))
			forged := *list[0]
			forged.Sig = list[1].Sig
			j.inject(&forged)
			j.inject(append(list, list...)...)
			testwait.Until(t, "the result", func() bool { return strings.Contains(out.String(), "red") && strings.Contains(out.String(), "result") })
			_ = cmd.Process.Signal(syscall.SIGINT)
			got := ended(cmd, out, stderr)
			clitest.WantCode(t, got, 130)
			if strings.Contains(got.Out, "\x1b") {
				t.Errorf("an escape reached the terminal: %q", got.Out)
			}
			if n := strings.Count(got.Out, "\n"); n != 5 {
				t.Errorf("%d lines, want 5: %s", n, got.Out)
			}
			if asJSON {
				watchedJSON(t, got.Out, r.ID)
				return
			}
			customer, provider := nostr.Npub(r.Customer)[:11]+"…", nostr.Npub(j.provider.PublicKey())[:11]+"…"
			for _, part := range []string{
				r.Created.UTC().Format(time.DateTime) + "  " + r.ID[:8] + "  request   " + customer + " to " + provider + ", kind 5900: paint " + `\x1b[31mred` + "\n",
				"  feedback  " + provider + "  processing: Retry 1/3 after error: Operation timed out after 30000ms (next in 1s)\n",
				"  result    " + provider + "  success in 8s: red\\nand\\x1b[2J more\n",
			} {
				clitest.WantIn(t, "stdout", got.Out, part)
			}
		})
	}
}

func watchedJSON(t *testing.T, text, request string) {
	t.Helper()
	want := []string{"request", "feedback", "feedback", "feedback", "result"}
	for line := range strings.Lines(text) {
		var x struct{ Type, Request, Content string }
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if len(want) == 0 || x.Type != want[0] || x.Request != request {
			t.Fatalf("%+v, want %v of %s", x, want, request)
		}
		if x.Type == "result" && x.Content != "red\nand\x1b[2J more" {
			t.Errorf("content = %q", x.Content)
		}
		want = want[1:]
	}
}

func TestWatchShowsCancellations(t *testing.T) {
	t.Parallel()
	j := newFakeProvider(t)
	request, out1, err1 := j.start("do it")
	r := j.request()
	cmd, _ := clitest.Command(t, "nip90", "watch", "--relay", j.relay.URL())
	out, stderr := new(clitest.SyncBuffer), new(clitest.SyncBuffer)
	cmd.Stdout, cmd.Stderr = out, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the request", func() bool { return strings.Contains(out.String(), "request") })
	_ = request.Process.Signal(syscall.SIGINT)
	testwait.Until(t, "the cancellation", func() bool { return strings.Contains(out.String(), "cancel    "+nostr.Npub(r.Customer)[:11]) })
	j.inject(j.answers(r, &dvm.History{Outcome: &dvm.Outcome{State: dvm.Cancelled, At: time.Now()}})...)
	testwait.Until(t, "the provider's word", func() bool { return strings.Contains(out.String(), "error: cancelled") })
	clitest.WantCode(t, ended(request, out1, err1), 130)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	clitest.WantCode(t, ended(cmd, out, stderr), 143)
}

func TestWatchRefusesBadFlags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no relay", nil, "--relay: no relay given"},
		{"a provider that is none", []string{"--relay", "ws://127.0.0.1:1", "--provider", "npub1x"}, "--provider: public key: "},
		{"a kind of results", []string{"--relay", "ws://127.0.0.1:1", "--kind", "5900,6900"}, "--kind: 6900 is not"},
		{"a number of hours", []string{"--relay", "ws://127.0.0.1:1", "--since", "yesterday"}, "--since"},
	} {
		got := clitest.Run(t, append([]string{"nip90", "watch"}, c.args...)...)
		clitest.WantCode(t, got, 125)
		clitest.WantIn(t, c.name+": stderr", got.Stderr, c.want)
	}
}
