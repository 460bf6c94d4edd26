package nostrtest_test

import (
	"testing"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

// challenge reads the challenge.
func (c *client) challenge() string {
	c.t.Helper()
	m, err := nostr.ParseRelayMessage([]byte(c.frame()))
	if err != nil || m.Type != nostr.TypeAuth {
		c.t.Fatalf("got %+v, %v, want a challenge", m, err)
	}
	return m.Text
}

func (c *client) auth(e *nostr.Event) {
	c.t.Helper()
	c.send(`["AUTH",%s]`, e.AppendJSON(nil))
}

func TestWhoHasToSayWhoItIs(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{AuthRequired: true}))
	link := dial(t, r)
	challenge := link.challenge()
	link.send(`["REQ","s",{}]`)
	link.publish(newNote(t, 100, "a"))
	link.want("CLOSED s auth-required", "OK false auth-required")
	link.auth(sign(t, 1, nostr.Event{
		Kind: nostr.KindAuth, CreatedAt: time.Now().Unix(), Tags: nostr.Tags{{"relay", r.URL() + "/"}, {"challenge", challenge}},
	}))
	link.send(`["REQ","s",{}]`)
	link.publish(newNote(t, 100, "a"))
	link.want("OK true", "EOSE s", "OK true", "EVENT s a")
}

func TestAChallengeComesBeforeTheFirstRefusal(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	link := dial(t, r)
	link.quiet()
	r.Change(func(f *nostrtest.Faults) { f.AuthRequired = true })
	link.send(`["REQ","s",{}]`)
	link.send(`["REQ","s",{}]`)
	link.want("AUTH", "CLOSED s auth-required", "CLOSED s auth-required")
}

func TestAnAuthThatIsNotBelieved(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(e *nostr.Event)
	}{
		{"another kind", func(e *nostr.Event) { e.Kind = 1 }},
		{"too old", func(e *nostr.Event) { e.CreatedAt -= 3600 }},
		{"from the future", func(e *nostr.Event) { e.CreatedAt += 3600 }},
		{"for another relay", func(e *nostr.Event) { e.Tags[0][1] = "ws://example.com" }},
		{"for another challenge", func(e *nostr.Event) { e.Tags[1][1] += "x" }},
		{"without tags", func(e *nostr.Event) { e.Tags = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{AuthRequired: true}))
			link := dial(t, r)
			e := nostr.Event{
				Kind: nostr.KindAuth, CreatedAt: time.Now().Unix(),
				Tags: nostr.Tags{{"relay", r.URL()}, {"challenge", link.challenge()}},
			}
			c.change(&e)
			link.auth(sign(t, 1, e))
			link.send(`["REQ","s",{}]`)
			link.want("OK false invalid", "CLOSED s auth-required")
		})
	}
	t.Run("forged", func(t *testing.T) {
		t.Parallel()
		r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{AuthRequired: true}))
		link := dial(t, r)
		e := sign(t, 1, nostr.Event{
			Kind: nostr.KindAuth, CreatedAt: time.Now().Unix(),
			Tags: nostr.Tags{{"relay", r.URL()}, {"challenge", link.challenge()}},
		})
		e.PubKey = key(t, 2).PublicKey()
		link.auth(e)
		link.want("OK false invalid")
	})
}
