//go:build unix

package nip90_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr/nostrtest"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// Two relays reject the request. The command ends and names both with their reasons.
func TestARefusalOfEveryRelayEndsTheRequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, one, other string
	}{
		{"for good", "blocked: not you", "payment-required: 100 sats a month"},
		{"for its work", "pow: difficulty 26 is less than 30", "invalid: too large"},
		{"for who asks", "restricted: members only", "blocked: not you"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j, other := newFakeProvider(t), nostrtest.New(t)
			j.relay.Change(func(f *nostrtest.Faults) { f.Reject = c.one })
			other.Change(func(f *nostrtest.Faults) { f.Reject = c.other })
			got := clitest.Finish(t, j.command("--relay", other.URL(), "do it"))
			clitest.WantCode(t, got, 125)
			clitest.WantIn(t, "stderr", got.Stderr, "tideover: no relay accepted the request\n  "+j.relay.URL()+": refused: "+c.one+"\n  "+other.URL()+": refused: "+c.other+"\n")
		})
	}
}

// One relay accepts the request, one rejects it temporarily, and one permanently. The rejections
// are printed, and the request succeeds.
func TestARefusalOfOneRelayIsShown(t *testing.T) {
	t.Parallel()
	j, slow, broken := newFakeProvider(t), nostrtest.New(t), nostrtest.New(t)
	slow.Change(func(f *nostrtest.Faults) { f.Reject = "rate-limited: slow \x1b[31mdown" })
	broken.Change(func(f *nostrtest.Faults) { f.Reject = "restricted: members only" })
	cmd, out, stderr := j.start("--relay", slow.URL(), "--relay", broken.URL(), "do it")
	r := j.request()
	testwait.Until(t, "the relays' word", func() bool { return strings.Contains(stderr.String(), "accepted by 1 of 3 relays") })
	j.inject(j.answers(r, succeeded(r, "done"))...)
	got := ended(cmd, out, stderr)
	clitest.WantCode(t, got, 0)
	clitest.WantIn(t, "stderr", got.Stderr, "not accepted by "+slow.URL()+": pending: rate-limited: slow ")
	clitest.WantIn(t, "stderr", got.Stderr, "not accepted by "+broken.URL()+": refused: restricted: members only\n")
	if strings.Contains(got.Stderr, "\x1b") {
		t.Errorf("an escape reached the terminal: %q", got.Stderr)
	}
}

// The only relay rejects the request temporarily. The reason is printed at once. Then the relay
// rejects it permanently, and the command ends.
func TestARefusalForNowIsShownAtOnce(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{"rate-limited: slow down", "error: no database", "because"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			j := newFakeProvider(t)
			j.relay.Change(func(f *nostrtest.Faults) { f.Reject = reason })
			cmd, out, stderr := j.start("--json", "do it")
			said := `{"warning":{"message":"` + j.relay.URL() + ": event not accepted: " + reason + "; retrying in "
			testwait.Until(t, "what the relay said", func() bool { return strings.Contains(stderr.String(), said) })
			j.relay.Change(func(f *nostrtest.Faults) { f.Reject = "blocked: enough" })
			got := ended(cmd, out, stderr)
			clitest.WantCode(t, got, 125)
			var end struct {
				Ending string
				Code   int
				Relays []struct{ Relay, State, Message string }
			}
			lines := strings.Split(strings.TrimSpace(got.Out), "\n")
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &end); err != nil {
				t.Fatal(err)
			}
			if len(end.Relays) != 1 || end.Relays[0] != struct{ Relay, State, Message string }{j.relay.URL(), "refused", "blocked: enough"} || end.Ending != "not-accepted" || end.Code != 125 {
				t.Errorf("the end: %+v", end)
			}
		})
	}
}

// All relays accept the request, but reject the subscription to its answers. The command names
// them.
func TestARelayThatSendsNoAnswersIsNamed(t *testing.T) {
	t.Parallel()
	j, other := newFakeProvider(t), nostrtest.New(t)
	for _, r := range []*nostrtest.Relay{j.relay, other} {
		r.Change(func(f *nostrtest.Faults) { f.CloseReq = "restricted: members only" })
	}
	got := clitest.Finish(t, j.command("--relay", other.URL(), "do it"))
	clitest.WantCode(t, got, 6)
	clitest.WantIn(t, "stderr", got.Stderr, "no relay delivers the answers")
	for _, r := range []*nostrtest.Relay{j.relay, other} {
		clitest.WantIn(t, "stderr", got.Stderr, "\n  "+r.URL()+": restricted: members only\n")
	}
}
