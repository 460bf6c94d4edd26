//go:build unix

package nip90_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/nostr/nostrtest"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestHowARequestEnds(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		answers func(j *fakeProvider, r *dvm.Request) []*nostr.Event
		code    int
		out     string
		stderr  string
	}{
		{"a timeout", func(j *fakeProvider, r *dvm.Request) []*nostr.Event { return j.answers(r, failed(r)) },
			124, "", "tideover: TIMEOUT: Operation timed out after 30000ms (after 2 retries)\n"},
		{"a permanent failure", func(j *fakeProvider, r *dvm.Request) []*nostr.Event {
			return j.sign(dvm.Refusal(r, dvm.CodeInvalid, "no \x1b[2Jsuch task", r.Created))
		}, 1, "", "tideover: INVALID_REQUEST: no "},
		{"a failure in a form of its own", func(j *fakeProvider, r *dvm.Request) []*nostr.Event {
			return j.sign([]nostr.Event{{Kind: 6900, CreatedAt: r.Created.Unix(), Content: "bro\x1b[2Jken\nin two", Tags: nostr.Tags{{"e", r.ID}, {"status", "error"}}}})
		}, 1, "", `tideover: bro\x1b[2Jken\nin two`},
		{"feedback that says error and no more", func(j *fakeProvider, r *dvm.Request) []*nostr.Event {
			return []*nostr.Event{j.feedback(r, "error", "provider shutting down")}
		}, 1, "", "tideover: provider shutting down\n"},
		{"cancelled", func(j *fakeProvider, r *dvm.Request) []*nostr.Event {
			return j.answers(r, &dvm.History{Outcome: &dvm.Outcome{State: dvm.Cancelled, At: r.Created}})
		}, 2, "", "tideover: canceled by the provider: cancelled\n"},
		{"a timeout with an odd number", func(j *fakeProvider, r *dvm.Request) []*nostr.Event {
			return j.sign([]nostr.Event{{Kind: 6900, CreatedAt: r.Created.Unix(), Content: `{"code":"TIMEOUT","message":"slow","retry":{"maxRetries":1e3}}`,
				Tags: nostr.Tags{{"e", r.ID}, {"status", "error"}}}})
		}, 124, "", "tideover: TIMEOUT: slow\n"},
		{"an unknown status", func(j *fakeProvider, r *dvm.Request) []*nostr.Event {
			return j.sign([]nostr.Event{{Kind: 6900, CreatedAt: r.Created.Unix(), Content: "2", Tags: nostr.Tags{{"e", r.ID}, {"status", "fini\x1b[2Jshed"}}}})
		}, 1, "2", `tideover: the result has the unknown status "fini\x1b[2Jshed"`},
		{"a part", func(j *fakeProvider, r *dvm.Request) []*nostr.Event {
			return j.answers(r, &dvm.History{Outcome: &dvm.Outcome{State: dvm.Succeeded, At: r.Created, Content: "half", Partial: true}})
		}, 5, "half", "tideover: the result is only partial\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := newFakeProvider(t)
			cmd, out, stderr := j.start("do it")
			j.inject(c.answers(j, j.request())...)
			got := ended(cmd, out, stderr)
			clitest.WantCode(t, got, c.code)
			clitest.WantIn(t, "stderr", got.Stderr, c.stderr)
			if got.Out != c.out {
				t.Errorf("stdout = %q, want %q", got.Out, c.out)
			}
			if strings.Contains(got.Stderr, "\x1b") {
				t.Errorf("an escape reached the terminal: %q", got.Stderr)
			}
		})
	}
}

func TestAnInterruptCancelsTheRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		sig  syscall.Signal
		json bool
	}{{"interrupt", syscall.SIGINT, false}, {"terminate", syscall.SIGTERM, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := newFakeProvider(t)
			args := []string{"do it"}
			if c.json {
				args = append(args, "--json")
			}
			cmd, out, stderr := j.start(args...)
			r := j.request()
			j.inject(j.feedback(r, "processing", "Started"))
			testwait.Until(t, "feedback", func() bool { return strings.Contains(out.String()+stderr.String(), "Started") })
			_ = cmd.Process.Signal(c.sig)
			j.relay.Await(t, func(stored []*nostr.Event) bool {
				last := stored[len(stored)-1]
				return last.Kind == dvm.KindDelete && last.PubKey == r.Customer && last.Tags.Has("e", r.ID)
			})
			j.inject(j.answers(r, &dvm.History{Outcome: &dvm.Outcome{State: dvm.Cancelled, At: r.Created.Add(2 * time.Second)}})...)
			got := ended(cmd, out, stderr)
			clitest.WantCode(t, got, 128+int(c.sig))
			if clitest.DiedOf(cmd) != c.sig {
				t.Errorf("it did not die of %v", c.sig)
			}
			clitest.WantIn(t, "output", got.Out+got.Stderr, "cancelled")
			if c.json {
				clitest.WantIn(t, "stdout", got.Out, `"ending":"interrupted","code":143}`)
			}
		})
	}
}

func TestASecondInterruptDoesNotWait(t *testing.T) {
	t.Parallel()
	j := newFakeProvider(t)
	cmd, out, stderr := j.start("do it")
	j.request()
	testwait.Until(t, "the relay's word", func() bool { return strings.Contains(stderr.String(), "accepted by 1 of 1") })
	_ = cmd.Process.Signal(syscall.SIGINT)
	testwait.Until(t, "the cancellation", func() bool { return strings.Contains(stderr.String(), "interrupt again to end at once") })
	_ = cmd.Process.Signal(syscall.SIGINT)
	clitest.WantCode(t, ended(cmd, out, stderr), 130)
}

func TestNobodyAnswers(t *testing.T) {
	t.Parallel()
	j := newFakeProvider(t)
	got := clitest.Finish(t, j.command("--wait", "1s", "do it"))
	clitest.WantCode(t, got, 4)
	clitest.WantIn(t, "stderr", got.Stderr, "no result within --wait")

	j.relay.Change(func(f *nostrtest.Faults) { f.Reject = "blocked: go \x1b[31maway" })
	got = clitest.Finish(t, j.command("do it"))
	clitest.WantCode(t, got, 125)
	clitest.WantIn(t, "stderr", got.Stderr, "no relay accepted the request\n  "+j.relay.URL()+": refused: ")
	clitest.WantIn(t, "stderr", got.Stderr, "blocked: go ")
	if strings.Contains(got.Stderr, "\x1b") {
		t.Errorf("an escape reached the terminal: %q", got.Stderr)
	}

	j.relay.Stop()
	got = clitest.Finish(t, j.command("--wait", "1s", "--json", "do it"))
	clitest.WantCode(t, got, 125)
	clitest.WantIn(t, "stderr", got.Stderr, j.relay.URL()+": link down: dial: ")
	clitest.WantIn(t, "stdout", got.Out, `"ending":"not-accepted","code":125`)
}

func TestARelayGoesAwayAndComesBack(t *testing.T) {
	t.Parallel()
	j := newFakeProvider(t)
	away := nostrtest.New(t)
	away.Stop()
	cmd, out, stderr := j.start("--relay", away.URL(), "do it")
	r := j.request()
	testwait.Until(t, "the relay that is away", func() bool { return strings.Contains(stderr.String(), "not accepted by "+away.URL()+": pending") })
	clitest.WantIn(t, "stderr", stderr.String(), "accepted by 1 of 2 relays")
	j.relay.Stop()
	testwait.Until(t, "the link is down", func() bool { return strings.Contains(stderr.String(), j.relay.URL()+": link down") })
	j.inject(j.answers(r, succeeded(r, "at last"))...) // while the customer is disconnected
	if err := j.relay.Restart(); err != nil {
		t.Fatal(err)
	}
	got := ended(cmd, out, stderr)
	clitest.WantCode(t, got, 0)
	if got.Out != "at last" {
		t.Errorf("stdout = %q", got.Out)
	}
}

func TestAResultThatCantBeWrittenIsNoSuccess(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("needs a disk that is always full")
	}
	defer full.Close()
	j := newFakeProvider(t)
	cmd, stderr := j.command("do it"), new(clitest.SyncBuffer)
	cmd.Stdout, cmd.Stderr = full, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := j.request()
	j.inject(j.answers(r, succeeded(r, "lost"))...)
	got := ended(cmd, new(clitest.SyncBuffer), stderr)
	clitest.WantCode(t, got, 125)
	clitest.WantIn(t, "stderr", got.Stderr, "tideover: writing the result: ")
}
