//go:build unix

package nip90_test

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/nostr/nostrtest"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// fakeProvider is a relay and the key of a provider, whose events the test creates.
type fakeProvider struct {
	t        *testing.T
	relay    *nostrtest.Relay
	provider nostr.SecretKey
}

func newFakeProvider(t *testing.T) *fakeProvider {
	t.Helper()
	key, err := nostr.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return &fakeProvider{t, nostrtest.New(t), key}
}

// command returns a nip90 request command that sends a request to the provider.
func (j *fakeProvider) command(args ...string) *exec.Cmd {
	j.t.Helper()
	all := append([]string{"nip90", "request", "--relay", j.relay.URL(), "--to", nostr.Npub(j.provider.PublicKey())}, args...)
	cmd, _ := clitest.Command(j.t, all...)
	cmd.Env = append(cmd.Env, "TZ=UTC")
	return cmd
}

// start starts a nip90 request command; the buffers get its output.
func (j *fakeProvider) start(args ...string) (cmd *exec.Cmd, out, stderr *clitest.SyncBuffer) {
	j.t.Helper()
	cmd, out, stderr = j.command(args...), new(clitest.SyncBuffer), new(clitest.SyncBuffer)
	cmd.Stdout, cmd.Stderr = out, stderr
	if err := cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	return cmd, out, stderr
}

// request waits until the relay has a request and returns it.
func (j *fakeProvider) request() *dvm.Request {
	j.t.Helper()
	var found *nostr.Event
	j.relay.Await(j.t, func(stored []*nostr.Event) bool {
		for _, e := range stored {
			if e.Kind >= 5000 && e.Kind < 6000 {
				found = e
			}
		}
		return found != nil
	})
	r, err := dvm.Parse(found, dvm.Rules{})
	if err != nil {
		j.t.Fatal(err)
	}
	return r
}

// sign signs events with the provider's key.
func (j *fakeProvider) sign(list []nostr.Event) []*nostr.Event {
	j.t.Helper()
	var out []*nostr.Event
	for i := range list {
		if err := list[i].Sign(j.provider); err != nil {
			j.t.Fatal(err)
		}
		out = append(out, &list[i])
	}
	return out
}

// answers returns the signed events that a provider publishes for a request with this history.
func (j *fakeProvider) answers(r *dvm.Request, h *dvm.History) []*nostr.Event {
	j.t.Helper()
	return j.sign(dvm.Answers(r, h))
}

// feedback returns one signed event of feedback.
func (j *fakeProvider) feedback(r *dvm.Request, status, message string, tags ...nostr.Tag) *nostr.Event {
	j.t.Helper()
	e := nostr.Event{
		Kind: dvm.KindFeedback, CreatedAt: r.Created.Unix() + 1, Content: message,
		Tags: append(nostr.Tags{{"status", status, message}, {"e", r.ID}, {"p", r.Customer}}, tags...),
	}
	return j.sign([]nostr.Event{e})[0]
}

func (j *fakeProvider) inject(events ...*nostr.Event) {
	for _, e := range events {
		j.relay.Inject(e)
	}
}

// succeeded returns a history with two retries and a result.
func succeeded(r *dvm.Request, content string) *dvm.History {
	at := func(s int) time.Time { return r.Created.Add(time.Duration(s) * time.Second) }
	return &dvm.History{
		MaxRetries: 3,
		Attempts: []dvm.Attempt{
			{Started: at(0), Ended: at(2), TimedOut: true, Retry: true, Wait: time.Second},
			{Started: at(3), Ended: at(5), Error: "connection refused", Retry: true, Wait: 2 * time.Second},
			{Started: at(7), Ended: at(8)},
		},
		Outcome: &dvm.Outcome{State: dvm.Succeeded, At: at(8), Content: content},
	}
}

// failed returns a history in which the last attempt times out.
func failed(r *dvm.Request) *dvm.History {
	h := succeeded(r, "")
	h.Attempts[2].TimedOut, h.MaxRetries = true, 2
	h.Outcome = &dvm.Outcome{State: dvm.Failed, At: h.Outcome.At}
	return h
}

// ended waits for the end of a command that start has started.
func ended(cmd *exec.Cmd, out, stderr *clitest.SyncBuffer) clitest.Outcome {
	_ = cmd.Wait()
	return clitest.Outcome{Code: clitest.ExitCode(cmd), Out: out.String(), Stderr: stderr.String()}
}

func TestNIP90Help(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"request", "watch", "keygen"} {
		got := clitest.Run(t, "nip90", verb, "--help")
		clitest.WantCode(t, got, 0)
		for _, part := range []string{"Examples:", "tideover nip90 " + verb, "Exit codes", "--json"} {
			clitest.WantIn(t, verb+" --help", got.Out, part)
		}
		for line := range strings.Lines(got.Out) {
			if !strings.Contains(line, "tideover nip90") && !strings.HasPrefix(strings.TrimSpace(line), "-") && len(line) > 90 {
				t.Errorf("%s --help: a long line: %q", verb, line)
			}
		}
	}
}
