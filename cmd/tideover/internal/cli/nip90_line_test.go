package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// exampleEntries has entries of all types, with hostile text in all fields.
func exampleEntries() []nip90client.Entry {
	number := func(n float64) *float64 { return &n }
	runtime := int64(12_345)
	request := strings.Repeat("1a2b3c4d", 8)
	customer, provider := "npub1customerxxxxxxxxxxxx", "npub1providerxxxxxxxxxxxx"
	list := []nip90client.Entry{
		{Type: "request", Kind: 5900, Author: customer, Provider: provider, Timeout: "30", Content: hostile},
		{Type: "request", Kind: 5050, Author: customer, Content: strings.Repeat("long ", 100)},
		{Type: "feedback", Status: "processing"},
		{Type: "feedback", Status: "processing", Message: "Retry 1/3 after error: no", Retry: &nip90client.Retry{Number: 1, Of: 3, Wait: 1500}},
		{Type: "feedback", Status: "processing", Message: "again", Retry: &nip90client.Retry{Number: 2, Of: -1, Wait: 1 << 62}},
		{Type: "feedback", Status: "processing", Message: "halfway", Progress: number(50), ETA: number(3725)},
		{Type: "feedback", Status: "payment-required\x1b[2J", Message: hostile, Amount: "21000\x07"},
		{Type: "result", Status: "success", Content: hostile, Runtime: &runtime},
		{Type: "result", Status: "error", Failure: &nip90client.Failure{Code: "TIMEOUT", Message: hostile, Retry: &dvm.Metadata{AttemptNumber: 1}}},
		{Type: "result", Status: "error", Failure: &nip90client.Failure{Message: "broken"}},
		{Type: "cancel", Kind: 5, Author: customer, Message: hostile},
		{Type: "cancel", Kind: 5, Author: customer},
		{Type: "request", Kind: 5900, Author: customer, Content: "it", Bid: "1000\x1b[2J"},
		{Type: "result", Status: "success", Content: "done", Amount: "1000\x1b[2J"},
		{Type: "offer", ID: request, Kinds: []int{5900, 5901}, Name: hostile, About: hostile},
		{Type: "offer", ID: request, Kinds: []int{5900}},
	}
	for i := range list {
		list[i].At, list[i].Request = at(time.Duration(i)*time.Second), request
		if list[i].Author == "" {
			list[i].Author = provider
		}
	}
	return list
}

func TestHowEventsOfNIP90Look(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, x := range exampleEntries() {
		b.WriteString(watchLine(&x, time.UTC) + "\n")
		if x.Type == nip90client.TypeFeedback {
			b.WriteString("  " + feedbackLine(&x, time.UTC) + "\n")
		}
		if x.Progress != nil {
			b.WriteString("  " + progressLine(&x) + "\n")
		}
	}
	golden(t, "nip90.txt", b.String())
	if strings.ContainsAny(b.String(), "\x1b\x07\u202e") {
		t.Error("something that is not text is in it")
	}
}

// If no relay accepts the request, the message at the end has the reply of each relay.
func TestTheEndNamesWhatRelaysSaid(t *testing.T) {
	t.Parallel()
	out := &nip90client.Outcome{Ending: nip90client.NotAccepted, Receipts: []nostr.Receipt{
		{Relay: "wss://a", State: nostr.Pending, Reason: "rate-limited: slow down"},
		{Relay: "wss://b", State: nostr.Pending, Reason: "no link: dial: refused"},
		{Relay: "wss://c", State: nostr.Pending},
		{Relay: "wss://d", State: nostr.Refused, Err: &nostr.RefusedError{ID: "1", Text: "blocked: \x1bno"}},
	}}
	const want = "no relay accepted the request\n  wss://a: pending: rate-limited: slow down\n  wss://b: pending: no link: dial: refused\n  wss://c: pending\n  wss://d: refused: blocked: \\x1bno"
	if code, text := describeEnding(out); code != CodeOwn || text != want {
		t.Errorf("judge = %d, %q, want %d, %q", code, text, CodeOwn, want)
	}
}
