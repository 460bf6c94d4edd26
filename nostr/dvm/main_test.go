package dvm_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
)

// TestMain fails if goroutines of this package are left.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if left := testwait.Goroutines("tideover/nostr"); left != "" {
			fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
			code = 1
		}
	}
	os.Exit(code)
}

// The keys of the tests: a provider, two customers.
var (
	ours     = testKey(1)
	customer = testKey(2)
	stranger = testKey(3)
)

func testKey(n int) nostr.SecretKey {
	k, err := nostr.ParseSecretKey(fmt.Sprintf("%064x", n))
	if err != nil {
		panic(err)
	}
	return k
}

// newRequest returns a signed request to the provider, changed by the
// functions.
func newRequest(tb testing.TB, at time.Time, change ...func(*nostr.Event)) *nostr.Event {
	tb.Helper()
	e := &nostr.Event{
		Kind: 5900, CreatedAt: at.Unix(), Content: "count the sheep",
		Tags: nostr.Tags{{"p", ours.PublicKey()}, {"i", "https://example.com/sheep", "url"}},
	}
	for _, f := range change {
		f(e)
	}
	return signed(tb, e, customer)
}

func signed(tb testing.TB, e *nostr.Event, key nostr.SecretKey) *nostr.Event {
	tb.Helper()
	if err := e.Sign(key); err != nil {
		tb.Fatal(err)
	}
	return e
}

// tagged adds tags to a request.
func tagged(tags ...nostr.Tag) func(*nostr.Event) {
	return func(e *nostr.Event) { e.Tags = append(e.Tags, tags...) }
}

// lines returns events as JSON, one per line.
func lines(events []*nostr.Event) string {
	var b strings.Builder
	for _, e := range events {
		b.Write(e.AppendJSON(nil))
		b.WriteByte('\n')
	}
	return b.String()
}
