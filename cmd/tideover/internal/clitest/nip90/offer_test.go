//go:build unix

package nip90_test

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// The server has a price for one kind of jobs, and none for another. It rejects a bid that is too
// low.
func TestABidIsAnswered(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	serveJobs(t, offering(`[sh, -c, 'echo "did $TASK"']`, "price: 1000\n    5901: {run: [echo, free]}", r), "", r)
	who, provider := clitest.NewCustomer(t), clitest.NostrKey(t, dvmKey).PublicKey()
	for _, c := range []struct {
		name    string
		kind    int
		bid     nostr.Tag
		answers string // kinds and statuses of all answers
		first   string // message of the first answer
		amount  string // price in the last feedback or in the result
	}{
		{"no bid", 5900, nil, "7000 payment-required, 6900 error", "The price is 1000 msat, and there was no bid;", "1000"},
		{"too little", 5900, nostr.Tag{"bid", "999"}, "7000 payment-required, 6900 error", "The price is 1000 msat, and the bid was 999 msat;", "1000"},
		{"what is no number", 5900, nostr.Tag{"bid", "a lot"}, "7000 payment-required, 6900 error", "The price is 1000 msat, and there was no bid;", "1000"},
		{"just enough", 5900, nostr.Tag{"bid", "1000"}, "7000 processing, 6900 success", "Started", "1000"},
		{"more than a number can hold", 5900, nostr.Tag{"bid", strings.Repeat("9", 40)}, "7000 processing, 6900 success", "Started", "1000"},
		{"free with a bid", 5901, nostr.Tag{"bid", "1000"}, "7000 processing, 6901 success", "Started; the job is free, the bid is not used", ""},
		{"free without", 5901, nil, "7000 processing, 6901 success", "Started", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			tags := nostr.Tags{{"p", provider}, {"param", "name", c.name}}
			if c.bid != nil {
				tags = append(tags, c.bid)
			}
			job := who.Event(c.kind, "it", tags...)
			r.Inject(job)
			answers := func(all []*nostr.Event) []*nostr.Event {
				return slices.DeleteFunc(slices.Clone(all), func(e *nostr.Event) bool { return !e.Tags.Has("e", job.ID) })
			}
			r.Await(t, func(all []*nostr.Event) bool { return len(answers(all)) == 2 })
			list := answers(r.Events())
			got := strings.ReplaceAll(strings.TrimSpace(words(withoutText(list))), "\n", ", ")
			if first := list[0].Tags.Find("status").At(2); got != c.answers || !strings.HasPrefix(first, c.first) {
				t.Errorf("answers: %s: %q, want %s: %q", got, first, c.answers, c.first)
			}
			amount := ""
			for _, e := range list {
				if tag := e.Tags.Find("amount"); tag != nil {
					amount += tag.Value()
				}
			}
			if amount != c.amount {
				t.Errorf("the amount is %q, want it once and %q", amount, c.amount)
			}
			if strings.HasSuffix(c.answers, "error") && !strings.Contains(list[1].Content, `"code":"PAYMENT_REQUIRED"`) {
				t.Errorf("the result: %s", list[1].Content)
			}
		})
	}
}

// withoutText returns the events with only their kinds and the first words of their statuses.
func withoutText(list []*nostr.Event) (short []*nostr.Event) {
	for _, e := range list {
		short = append(short, &nostr.Event{Kind: e.Kind, Tags: nostr.Tags{{"status", e.Tags.Find("status").Value()}}})
	}
	return short
}

// nip90 request sends the bid of --bid. Without one, a server that has a price rejects the request.
func TestACustomerBids(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	serveJobs(t, offering(`[sh, -c, 'echo "did $TASK"']`, "price: 1000", r), "", r)
	ask := func(args ...string) clitest.Outcome {
		return clitest.Run(t, append([]string{"nip90", "request", "--relay", r.URL(), "--to", clitest.NostrKey(t, dvmKey).PublicKey()}, args...)...)
	}
	got := ask("it")
	clitest.WantCode(t, got, 1)
	clitest.WantIn(t, "stderr", got.Stderr, "(costs 1000 msat)")
	clitest.WantIn(t, "stderr", got.Stderr, "tideover: PAYMENT_REQUIRED: The price is 1000 msat, and there was no bid; ask again with a bid of at least the price")
	got = ask("--bid", "1500", "it")
	clitest.WantCode(t, got, 0)
	clitest.WantIn(t, "stderr", got.Stderr, "tideover: the provider asks for 1000 msat; nothing was paid\n")
	if got.Out != "did it" {
		t.Errorf("stdout = %q", got.Out)
	}
	clitest.WantCode(t, ask("--bid", "-1", "it"), 125)
}

// The server publishes an announcement of its offer, and a new one when its configuration changes.
func TestTheProviderAnnouncesWhatItOffers(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	text := func(more, kinds string) string {
		return strings.Replace(offering(`[agent, --secret-flag, "{{ .input.task }}"]`, kinds, r), "nip90:\n", "nip90:\n"+more, 1)
	}
	announcements := func(all []*nostr.Event) []*nostr.Event {
		return slices.DeleteFunc(slices.Clone(all), func(e *nostr.Event) bool { return e.Kind != 31990 })
	}
	// wait waits until the relay's only announcement has these tags.
	wait := func(tags string) *nostr.Event {
		t.Helper()
		var found *nostr.Event
		r.Await(t, func(all []*nostr.Event) bool {
			for _, e := range announcements(all) {
				if text, _ := json.Marshal(e.Tags); string(text) == tags {
					found = e
				}
			}
			return found != nil
		})
		if n := len(announcements(r.Events())); n != 1 {
			t.Errorf("the relay keeps %d announcements, want one", n)
		}
		return found
	}
	s := serveJobs(t, text("  name: Hello <you>\n  about: It greets.\n", "timeout: 5s"), "", r)
	first := wait(`[["d","tideover-nip90"],["k","5900"]]`)
	if err := first.Verify(); err != nil || first.PubKey != clitest.NostrKey(t, dvmKey).PublicKey() || first.Content != `{"name":"Hello <you>","about":"It greets."}` {
		t.Errorf("the announcement: %+v, %v", first, err)
	}
	if line := string(first.AppendJSON(nil)); strings.Contains(line, "secret") || strings.Contains(line, dvmKey) || strings.Contains(line, "agent") {
		t.Errorf("the announcement contains private data: %s", line)
	}

	s.Reload(text("  name: Hello\n", "timeout: 5s\n    5901: {run: [x]}"))
	second := wait(`[["d","tideover-nip90"],["k","5900"],["k","5901"]]`)
	if second.CreatedAt <= first.CreatedAt || second.Content != `{"name":"Hello"}` {
		t.Errorf("the second announcement is %+v, after %+v", second, first)
	}

	s.Reload(text("  announce: false\n", "timeout: 5s"))
	r.Await(t, func(all []*nostr.Event) bool {
		return slices.ContainsFunc(all, func(e *nostr.Event) bool {
			return e.Kind == 5 && e.Tags.Has("e", second.ID) && e.Tags.Has("a", "31990:"+second.PubKey+":tideover-nip90")
		}) && len(announcements(all)) == 0
	})
	stop(s, syscall.SIGTERM)
}

// A server that accepts only listed customers does not announce its offer to the relay.
func TestAProviderForSomeAnnouncesNothing(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	who := clitest.NewCustomer(t)
	text := strings.Replace(offering(`[echo, hello]`, "", r), "nip90:\n", "nip90:\n  customers: ["+nostr.Npub(who.Key.PublicKey())+"]\n", 1)
	s := serveJobs(t, text, "", r)
	asked := func() bool { // the server begins by asking the relay for an existing announcement
		return slices.ContainsFunc(r.Received(), func(m nostrtest.Received) bool { return strings.Contains(m.Frame, "31990") })
	}
	testwait.Until(t, "the relay is asked", asked)
	job := request(who, "it")
	r.Inject(job)
	answered(t, r, job)
	stop(s, syscall.SIGTERM)
	for _, e := range r.Events() {
		if e.Kind == 31990 || e.Kind == 5 {
			t.Errorf("the relay received %+v", e)
		}
	}
}
