package nip90client_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// fakeLink is a link to two relays with scripted answers.
type fakeLink struct {
	subscribed []nostr.Filter
	published  []*nostr.Event
	receipts   []nostr.Receipt

	mu     sync.Mutex
	closed map[string]string    // relays that refuse the subscription
	then   func(e *nostr.Event) // is called after an event was published
}

func (f *fakeLink) Subscribe(_ string, _ time.Time, filters ...nostr.Filter) { f.subscribed = filters }

func (f *fakeLink) Refusals(string) map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.closed
}

// refuse makes the relays refuse the subscription, with the given reasons.
func (f *fakeLink) refuse(closed map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = closed
}

func (f *fakeLink) Publish(e *nostr.Event) func() []nostr.Receipt {
	f.published = append(f.published, e)
	if f.then != nil {
		f.then(e)
	}
	return func() []nostr.Receipt { return slices.Clone(f.receipts) }
}

var (
	errBlocked = errors.New("blocked: not you")

	taken   = nostr.Receipt{Relay: "ws://a", State: nostr.Acknowledged}
	pending = nostr.Receipt{Relay: "ws://b", State: nostr.Pending}
	refused = nostr.Receipt{Relay: "ws://c", State: nostr.Refused, Err: errBlocked}
)

// asked is a customer with a fake link, and a record of its callbacks.
type asked struct {
	*deal
	link     *fakeLink
	customer *nip90client.Customer
	shown    []nip90client.Entry
	sent     [][]nostr.Receipt
	takes    int
}

func newAsked(t *testing.T, receipts ...nostr.Receipt) *asked {
	t.Helper()
	a := &asked{deal: newDeal(t), link: &fakeLink{receipts: receipts}}
	a.customer = &nip90client.Customer{
		Link: a.link, Inbox: nip90client.NewInbox(nip90client.Answers(a.request)), Key: a.deal.customer, Wait: time.Minute,
		Sent:  func(list []nostr.Receipt) { a.sent = append(a.sent, list) },
		Show:  func(x *nip90client.Entry) { a.shown = append(a.shown, *x) },
		Taken: func() { a.takes++ },
	}
	return a
}

// say delivers events of the provider, one each second.
func (a *asked) say(events ...*nostr.Event) {
	for _, e := range events {
		time.Sleep(time.Second)
		if err := a.customer.Inbox.Put(e); err != nil {
			a.tb.Error(err)
		}
	}
}

func (a *asked) ask(ctx context.Context) nip90client.Outcome {
	a.tb.Helper()
	out, err := a.customer.Ask(ctx, a.request)
	if err != nil {
		a.tb.Fatal(err)
	}
	return out
}

func TestTheCustomerSubscribesPublishesAndGetsTheResult(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAsked(t, taken)
		a.link.then = func(*nostr.Event) {
			if len(a.link.subscribed) == 0 {
				t.Error("published before the answers were subscribed to")
			}
			go a.say(a.feedback(0, "processing", "Started"), a.result(3, "success", "2"))
		}
		out := a.ask(t.Context())
		if out.Ending != nip90client.Done || out.Entry == nil || out.Entry.Content != "2" {
			t.Errorf("Ask = %+v", out)
		}
		if got, want := messages(a.shown), "feedback processing Started; result success "; got != want {
			t.Errorf("shown: %q, want %q", got, want)
		}
		if len(a.sent) != 1 || len(a.link.published) != 1 {
			t.Errorf("sent %d times, published %d events", len(a.sent), len(a.link.published))
		}
	})
}

func TestHowAnswersEndARequest(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		answers func(d *deal) []*nostr.Event
		want    nip90client.Ending
		message string // of the feedback or the failure that ended the request
		took    time.Duration
	}{
		{"an error result", func(d *deal) []*nostr.Event {
			return []*nostr.Event{d.feedback(1, "error", "TIMEOUT: too slow"), d.result(1, "error", `{"error":true,"code":"TIMEOUT","message":"too slow"}`)}
		}, nip90client.Failed, "too slow", 2 * time.Second},
		{"error feedback that no result follows", func(d *deal) []*nostr.Event {
			return []*nostr.Event{d.feedback(1, "error", "provider shutting down")}
		}, nip90client.Failed, "provider shutting down", time.Second + nip90client.AfterError},
		{"a result with an unknown status", func(d *deal) []*nostr.Event {
			return []*nostr.Event{d.result(1, "finished", "2")}
		}, nip90client.Failed, "", time.Second},
		{"a part of a result", func(d *deal) []*nostr.Event {
			return []*nostr.Event{d.result(1, "partial", "1")}
		}, nip90client.Partial, "", time.Second},
		{"cancelled", func(d *deal) []*nostr.Event {
			return []*nostr.Event{d.feedback(1, "error", "cancelled")}
		}, nip90client.Cancelled, "cancelled", time.Second},
		{"feedback only", func(d *deal) []*nostr.Event {
			return []*nostr.Event{d.feedback(1, "processing", "Started")}
		}, nip90client.NoAnswer, "", time.Minute},
		{"silence", func(*deal) []*nostr.Event { return nil }, nip90client.NoAnswer, "", time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, start := newAsked(t, taken), time.Now()
				a.link.then = func(*nostr.Event) { go a.say(c.answers(a.deal)...) }
				out := a.ask(t.Context())
				if out.Ending != c.want {
					t.Errorf("Ask = %+v, want %s", out, c.want)
				}
				if took := time.Since(start); took < c.took || took > c.took+nip90client.ReorderDelay {
					t.Errorf("it took %v, want %v", took, c.took)
				}
				message := ""
				switch {
				case out.Entry == nil:
				case out.Entry.Failure != nil:
					message = out.Entry.Failure.Message
				default:
					message = out.Entry.Message
				}
				if message != c.message {
					t.Errorf("message %q, want %q", message, c.message)
				}
			})
		})
	}
}

func TestWhenARequestIsTaken(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		receipts []nostr.Receipt
		answer   bool
		want     nip90client.Ending
		sent     int
		took     time.Duration
	}{
		{"all relays have it", []nostr.Receipt{taken, taken}, false, nip90client.Detached, 1, 0},
		{"one has it and one refuses it", []nostr.Receipt{taken, refused}, false, nip90client.Detached, 1, 0},
		{"one has it and one is away", []nostr.Receipt{taken, pending}, false, nip90client.Detached, 1, 2 * time.Second},
		{"all refuse it", []nostr.Receipt{refused, refused}, false, nip90client.NotAccepted, 0, 0},
		{"all are away", []nostr.Receipt{pending, refused}, false, nip90client.NotAccepted, 0, time.Minute},
		{"a relay says nothing, but the provider does", []nostr.Receipt{pending}, true, nip90client.Detached, 1, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, start := newAsked(t, c.receipts...), time.Now()
				a.customer.Detach = true
				if c.answer {
					go a.say(a.feedback(1, "processing", "Started"))
				}
				out := a.ask(t.Context())
				if out.Ending != c.want || len(a.sent) != c.sent || len(out.Receipts) != len(c.receipts) {
					t.Errorf("Ask = %+v, sent %d times, want %s and %d", out, len(a.sent), c.want, c.sent)
				}
				if took := time.Since(start); took != c.took {
					t.Errorf("it took %v, want %v", took, c.took)
				}
			})
		})
	}
}

func TestAnInterruptTakesTheRequestBack(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		before []nostr.Receipt
		obeys  bool
	}{
		{"the provider obeys", []nostr.Receipt{taken}, true},
		{"the provider is silent", []nostr.Receipt{taken}, false},
		{"no relay has taken it yet", []nostr.Receipt{pending}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a, start := newAsked(t, c.before...), time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				a.link.then = func(e *nostr.Event) {
					if e.Kind == dvm.KindDelete && c.obeys {
						go a.say(a.feedback(11, "error", "cancelled"))
					}
				}
				out := a.ask(ctx)
				if out.Ending != nip90client.Interrupted || a.takes != 1 || len(a.link.published) != 2 {
					t.Fatalf("Ask = %+v, taken back %d times, %d published", out, a.takes, len(a.link.published))
				}
				e := a.link.published[1]
				if e.Verify() != nil || e.PubKey != a.request.PubKey || e.Kind != dvm.KindDelete || !e.Tags.Has("e", a.request.ID) || !e.Tags.Has("k", "5900") {
					t.Errorf("taken back by %+v", e)
				}
				want := 15 * time.Second
				if c.obeys {
					want = 11*time.Second + nip90client.ReorderDelay
				}
				if took := time.Since(start); took != want {
					t.Errorf("it took %v, want %v", took, want)
				}
			})
		})
	}
}

// TestACustomerWhoCantReadAnswersDoesNotWait makes relays accept the request and refuse the
// subscription: at first one of two, then both.
func TestACustomerWhoCantReadAnswersDoesNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		other := taken
		other.Relay = "ws://b"
		a := newAsked(t, taken, other)
		a.customer.Wait = time.Hour
		begun := time.Now()
		a.link.refuse(map[string]string{"ws://a": "restricted: members only"})
		time.AfterFunc(10*time.Minute, func() {
			a.link.refuse(map[string]string{"ws://a": "restricted: members only", "ws://b": "blocked: not you"})
		})
		out := a.ask(t.Context())
		if out.Ending != nip90client.Unreadable || len(out.Closed) != 2 || out.Closed["ws://b"] != "blocked: not you" {
			t.Errorf("Ask = %+v", out)
		}
		if took := time.Since(begun); took < 10*time.Minute || took > 11*time.Minute {
			t.Errorf("it took %v, want until the second relay refused", took)
		}
	})
}
