package dvm_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/nostr/nostrtest"
	"github.com/tideover/tideover/retry"
)

// quick is a retry pace for tests over real sockets.
func quick(tb testing.TB) retry.Policy {
	tb.Helper()
	p, err := retry.Parse("exponential(10ms..100ms) jitter=full attempts=unlimited reset-after=60s")
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// serve runs a provider with the handler until the returned function is called,
// or the test ends. Its timeouts are too long to matter on a slow machine.
func serve(t *testing.T, h dvm.Handler, relays ...*nostrtest.Relay) (stop func()) {
	t.Helper()
	cfg := dvm.ServeConfig{Key: ours, Handler: h, FlushTimeout: time.Hour}
	cfg.Client = nostr.ClientConfig{
		Reconnect: quick(t), Resend: quick(t),
		DialTimeout: time.Hour, WriteTimeout: time.Hour, PingEvery: time.Hour, PingTimeout: time.Hour, OKTimeout: time.Hour,
	}
	cfg.Provider.AskTimeout = time.Hour
	cfg.Provider.Kinds = map[int]dvm.Rules{dvm.DefaultKind: {DefaultTimeout: 10 * time.Minute}}
	for _, r := range relays {
		cfg.Relays = append(cfg.Relays, r.URL())
	}
	c, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- dvm.Serve(c, cfg) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// answers returns the events of the provider at a relay, of a kind.
func answers(r *nostrtest.Relay, kind int) (list []*nostr.Event) {
	for _, e := range r.Events() {
		if e.PubKey == ours.PublicKey() && e.Kind == kind {
			list = append(list, e)
		}
	}
	return list
}

// counted counts the calls of a handler.
func counted(n *atomic.Int64, h dvm.Handler) dvm.Handler {
	return func(c ctx, r *dvm.Request, report func(dvm.Progress)) (dvm.Result, error) {
		n.Add(1)
		return h(c, r, report)
	}
}

// upperHandler is a handler that succeeds.
func upperHandler(_ ctx, r *dvm.Request, _ func(dvm.Progress)) (dvm.Result, error) {
	return dvm.Result{Content: strings.ToUpper(r.Task)}, nil
}

func TestAJobOnTwoRelaysIsDoneOnce(t *testing.T) {
	t.Parallel()
	a, b := nostrtest.New(t), nostrtest.New(t)
	b.Change(func(f *nostrtest.Faults) { f.Repeat = 3 })
	var calls atomic.Int64
	serve(t, counted(&calls, upperHandler), a, b)
	testwait.Until(t, "both are connected", func() bool { return a.Connections() == 1 && b.Connections() == 1 })
	e := newRequest(t, time.Now())
	a.Inject(e)
	b.Inject(e)
	for _, r := range []*nostrtest.Relay{a, b} {
		testwait.Until(t, "the result", func() bool { return len(answers(r, 6900)) > 0 })
	}
	a.Inject(e) // again
	second := newRequest(t, time.Now(), withTimeout("600"))
	b.Inject(second)
	testwait.Until(t, "the second result", func() bool { return len(answers(a, 6900)) == 2 && len(answers(b, 6900)) == 2 })
	if n := calls.Load(); n != 2 {
		t.Errorf("%d calls for two jobs", n)
	}
	same := func(x, y *nostr.Event) bool { return x.ID == y.ID }
	if x, y := answers(a, 7000), answers(b, 7000); !slices.EqualFunc(x, y, same) || len(x) != 2 {
		t.Errorf("one relay got %v, the other %v", x, y)
	}
	got := answers(a, 6900)[0]
	if got.Content != "COUNT THE SHEEP" || got.Verify() != nil || !got.Tags.Has("e", e.ID) || !got.Tags.Has("status", "success") {
		t.Errorf("the result is %v", got)
	}
}

func TestAJobSentDuringAnOutageIsAnsweredAfterIt(t *testing.T) {
	t.Parallel()
	relay := nostrtest.New(t)
	serve(t, upperHandler, relay)
	testwait.Until(t, "the link", func() bool { return relay.Connections() == 1 })
	relay.Stop()
	e := newRequest(t, time.Now())
	relay.Inject(e)
	if err := relay.Restart(); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "the result", func() bool { return len(answers(relay, 6900)) == 1 })
}

func TestAResultThatWasSentIntoACutLinkArrives(t *testing.T) {
	t.Parallel()
	relay := nostrtest.New(t)
	relay.Change(func(f *nostrtest.Faults) { f.DropEvent = 2 })
	serve(t, upperHandler, relay)
	relay.Inject(newRequest(t, time.Now()))
	testwait.Until(t, "the result", func() bool { return len(answers(relay, 6900)) == 1 })
	if n := len(answers(relay, 7000)); n != 1 {
		t.Errorf("%d events of feedback, want 1", n)
	}
}

func TestARestartDoesNotRepeatWhatWasAnswered(t *testing.T) {
	t.Parallel()
	relay := nostrtest.New(t)
	var calls atomic.Int64
	e, bad := newRequest(t, time.Now()), newRequest(t, time.Now(), withTimeout("abc"))
	relay.Inject(e)
	relay.Inject(bad)
	stop := serve(t, counted(&calls, upperHandler), relay)
	testwait.Until(t, "the results", func() bool { return len(answers(relay, 6900)) == 2 })
	stop()
	serve(t, counted(&calls, upperHandler), relay)
	next := newRequest(t, time.Now(), withTimeout("600"))
	relay.Inject(next)
	testwait.Until(t, "the next result", func() bool {
		return slices.ContainsFunc(answers(relay, 6900), func(a *nostr.Event) bool { return a.Tags.Has("e", next.ID) })
	})
	if n, said := calls.Load(), len(answers(relay, 6900)); n != 2 || said != 3 {
		t.Errorf("%d calls and %d results, want 2 and 3", n, said)
	}
}

func TestACustomerCancelsOverARelay(t *testing.T) {
	t.Parallel()
	relay := nostrtest.New(t)
	var cancelled atomic.Bool
	serve(t, func(c ctx, _ *dvm.Request, _ func(dvm.Progress)) (dvm.Result, error) {
		<-c.Done()
		cancelled.Store(errors.Is(c.Err(), context.Canceled))
		return dvm.Result{}, c.Err()
	}, relay)
	e := newRequest(t, time.Now())
	relay.Inject(e)
	testwait.Until(t, "the start", func() bool { return len(answers(relay, 7000)) == 1 })
	relay.Inject(signed(t, &nostr.Event{Kind: 5, CreatedAt: time.Now().Unix(), Tags: nostr.Tags{{"e", e.ID}}}, stranger))
	relay.Inject(signed(t, &nostr.Event{Kind: 5, CreatedAt: time.Now().Unix(), Tags: nostr.Tags{{"e", e.ID}}}, customer))
	testwait.Until(t, "the end", func() bool { return len(answers(relay, 7000)) == 2 && cancelled.Load() })
	if got := answers(relay, 7000)[1].Content; got != "cancelled" || len(answers(relay, 6900)) != 0 {
		t.Errorf("told: %q and %v", got, answers(relay, 6900))
	}
}

func TestTheEndOfAProviderIsTold(t *testing.T) {
	t.Parallel()
	relay := nostrtest.New(t)
	stop := serve(t, hangingHandler, relay)
	relay.Inject(newRequest(t, time.Now()))
	testwait.Until(t, "the start", func() bool { return len(answers(relay, 7000)) == 1 })
	stop()
	if got := answers(relay, 7000); len(got) != 2 || got[1].Content != "provider shutting down" || len(answers(relay, 6900)) != 0 {
		t.Errorf("told %v", got)
	}
}

func TestARelayThatForgesIsLeftAlone(t *testing.T) {
	t.Parallel()
	bad := nostrtest.New(t)
	serve(t, upperHandler, bad)
	testwait.Until(t, "the link", func() bool { return bad.Connections() == 1 })
	forge := func(i int) {
		e := &nostr.Event{
			PubKey: customer.PublicKey(), Kind: 5900, CreatedAt: time.Now().Unix(), Content: fmt.Sprint(i),
			Tags: nostr.Tags{{"p", ours.PublicKey()}}, Sig: strings.Repeat("0", 128),
		}
		hash := e.Hash()
		e.ID = hex.EncodeToString(hash[:])
		bad.Inject(e)
	}
	n := 0
	testwait.Until(t, "the link is cut", func() bool { // more than 100 must come in one minute
		for range 60 {
			n++
			forge(n)
		}
		return bad.Connections() == 0
	})
	if said := append(answers(bad, 7000), answers(bad, 6900)...); len(said) != 0 {
		t.Errorf("the relay got %v", said)
	}
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for want, cfg := range map[string]dvm.ServeConfig{
		"relays: the list is empty": {Key: ours, Handler: upperHandler},
		"handler: nil":              {Key: ours, Relays: []string{"ws://127.0.0.1:1"}},
		"kinds: 7 is not": {Key: ours, Handler: upperHandler, Relays: []string{"ws://127.0.0.1:1"},
			Provider: dvm.Config{Kinds: map[int]dvm.Rules{7: {}}}},
	} {
		if err := dvm.Serve(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Serve: %v, want %q", err, want)
		}
	}
}
