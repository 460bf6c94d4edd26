package nip90client_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

func newKey(tb testing.TB) nostr.SecretKey {
	tb.Helper()
	key, err := nostr.GenerateKey()
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// deal is a request, with the keys of its customer and its provider.
type deal struct {
	tb                 testing.TB
	customer, provider nostr.SecretKey
	request            *nostr.Event
}

func newDeal(tb testing.TB) *deal {
	tb.Helper()
	d := &deal{tb: tb, customer: newKey(tb), provider: newKey(tb)}
	ask := nip90client.Ask{Kind: dvm.DefaultKind, Provider: d.provider.PublicKey(), Task: "add 1 and 1"}
	request, err := ask.Event(d.customer, time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	d.request = request
	return d
}

// answer returns an event of the provider about the request. Its time is after seconds
// later than the request.
func (d *deal) answer(kind int, after int64, content string, tags ...nostr.Tag) *nostr.Event {
	return d.by(d.provider, kind, after, content, tags...)
}

func (d *deal) by(key nostr.SecretKey, kind int, after int64, content string, tags ...nostr.Tag) *nostr.Event {
	d.tb.Helper()
	e := &nostr.Event{
		Kind: kind, CreatedAt: d.request.CreatedAt + after, Content: content,
		Tags: append(nostr.Tags{{"e", d.request.ID}, {"p", d.customer.PublicKey()}}, tags...),
	}
	if err := e.Sign(key); err != nil {
		d.tb.Fatal(err)
	}
	return e
}

func (d *deal) feedback(after int64, status, message string, tags ...nostr.Tag) *nostr.Event {
	d.tb.Helper()
	return d.answer(dvm.KindFeedback, after, message, append(nostr.Tags{{"status", status, message}}, tags...)...)
}

func (d *deal) result(after int64, status, content string) *nostr.Event {
	d.tb.Helper()
	return d.answer(nip90client.ResultKind(d.request.Kind), after, content, nostr.Tag{"status", status}, nostr.Tag{"runtime", "1200"})
}

// messages returns the type, the status and the message of each entry.
func messages(list []nip90client.Entry) string {
	var words []string
	for _, x := range list {
		words = append(words, x.Type+" "+x.Status+" "+x.Message)
	}
	return strings.Join(words, "; ")
}
