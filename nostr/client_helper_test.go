package nostr_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
	"github.com/tideover/tideover/retry"
)

// quick is a retry pace for tests; no test measures it.
const quick = "exponential(1ms..20ms) jitter=full attempts=unlimited reset-after=60s"

func policy(t testing.TB, text string) retry.Policy {
	t.Helper()
	p, err := retry.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func testKey(t testing.TB, n int) nostr.SecretKey {
	t.Helper()
	k, err := nostr.ParseSecretKey(fmt.Sprintf("%064x", n+1))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// newEvent returns a signed event with the content.
func newEvent(t testing.TB, content string) *nostr.Event {
	t.Helper()
	e := &nostr.Event{Kind: 7000, CreatedAt: time.Now().Unix(), Content: content, Tags: nostr.Tags{}}
	if err := e.Sign(testKey(t, 1)); err != nil {
		t.Fatal(err)
	}
	return e
}

// inbox stores what a client handles.
type inbox struct {
	mu     sync.Mutex
	seen   []string // contents of the events, in order, without their relays
	stored []string // subscriptions
}

func (b *inbox) handle(_ string, e *nostr.Event) error {
	if err := e.CheckSignature(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seen = append(b.seen, e.Content)
	return nil
}

func (b *inbox) eose(_, sub string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stored = append(b.stored, sub)
}

func (b *inbox) has(content string) bool { return b.count(content) > 0 }

func (b *inbox) count(content string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.seen {
		if c == content {
			n++
		}
	}
	return n
}

func (b *inbox) eoses() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.stored)
}

// client returns a client of the relays that is not running yet. Only timeouts
// that the test sets can end a link, or send an event again, on a slow machine.
func client(t testing.TB, change func(*nostr.ClientConfig), relays ...*nostrtest.Relay) *nostr.Client {
	t.Helper()
	cfg := nostr.ClientConfig{
		Key: testKey(t, 1), Reconnect: policy(t, quick), Resend: policy(t, quick),
		DialTimeout: time.Hour, WriteTimeout: time.Hour, PingEvery: time.Hour, PingTimeout: time.Hour, OKTimeout: time.Hour, Sweep: time.Hour,
	}
	for _, r := range relays {
		cfg.Relays = append(cfg.Relays, r.URL())
	}
	if change != nil {
		change(&cfg)
	}
	c, err := nostr.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// run runs the client until the test ends.
func run(t testing.TB, c *nostr.Client) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := testwait.Receive(t, "the end of Run", done); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// contents returns the contents of the relay's events.
func contents(r *nostrtest.Relay) string {
	var list []string
	for _, e := range r.Events() {
		list = append(list, e.Content)
	}
	return strings.Join(list, " ")
}

func wait(t testing.TB, d *nostr.Delivery) {
	t.Helper()
	if err := d.Wait(testwait.Context(t)); err != nil {
		t.Fatalf("Wait: %v", err)
	}
}

// asked returns the filters of each REQ that the relay got.
func asked(r *nostrtest.Relay) (list []nostr.Filter) {
	for _, m := range r.Received() {
		if m.Message != nil && m.Message.Type == nostr.TypeReq {
			list = append(list, m.Message.Filters...)
		}
	}
	return list
}

// received counts the messages of a type that the relay got.
func received(r *nostrtest.Relay, kind string) (n int) {
	for _, m := range r.Received() {
		if m.Message != nil && m.Message.Type == kind {
			n++
		}
	}
	return n
}

// logbook is a logger whose output can be read.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logbook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func refused(err error) string {
	if r, ok := errors.AsType[*nostr.RefusedError](err); ok {
		return r.Text
	}
	return ""
}
