package nostr

import (
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// foreign returns an event beyond our limits, as another program may publish
// it.
func foreign(t testing.TB, r *relay, change func(*Event)) *Event {
	t.Helper()
	e := signed(t, r, "x")
	change(e)
	e.ID = hexOf(e)
	return e
}

func hexOf(e *Event) string {
	const digits = "0123456789abcdef"
	var b strings.Builder
	for _, c := range e.Hash() {
		b.WriteByte(digits[c>>4])
		b.WriteByte(digits[c&15])
	}
	return b.String()
}

func TestEventsBeyondOurLimitsAreNoOffence(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Event){
		"too many tags":  func(e *Event) { e.Tags = make(Tags, MaxTags+1) },
		"a long content": func(e *Event) { e.Content = strings.Repeat("x", MaxContent+1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			handled := 0
			r := testRelay(t, func(c *ClientConfig) {
				c.Handle = func(string, *Event) error { handled++; return nil }
			})
			subscribe(r)
			wantSent(t, r, start, TypeReq)
			m := &Message{Type: TypeEvent, Sub: "1:jobs", Event: foreign(t, r, change)}
			if err := (relayLink{r}).handleFrame(websocket.MessageText, m.Append(nil, false), start); err != nil {
				t.Fatalf("the link is cut: %v", err)
			}
			for range maxGarbage {
				deliverMessage(t, r, start, *m)
			}
			got := r.status(start)
			if got.Unfit != maxGarbage+1 || got.BadEvents != 0 || got.BadFrames != 0 || handled != 0 {
				t.Errorf("status: %+v, %d handled, want all unfit and nothing else", got, handled)
			}
		})
	}
}

func TestAWrongIDAndAWrongSubscriptionAreOffences(t *testing.T) {
	t.Parallel()
	r := testRelay(t, nil)
	subscribe(r)
	wantSent(t, r, start, TypeReq)
	other := signed(t, r, "x")
	other.Content = "y"
	deliverMessage(t, r, start, Message{Type: TypeEvent, Sub: "1:jobs", Event: other})
	deliverMessage(t, r, start, Message{Type: TypeEvent, Sub: "1:jobs", Event: foreign(t, r, func(e *Event) { e.Kind = 1 })})
	if got := r.status(start); got.BadEvents != 2 || got.Unfit != 0 {
		t.Errorf("status: %+v, want two bad events", got)
	}
}

func TestGarbageHasALimitOfItsOwn(t *testing.T) {
	t.Parallel()
	for name, frame := range map[string]string{
		"no message":                      `["OK"]`,
		"nothing":                         ``,
		"an event without a subscription": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testRelay(t, nil)
			if strings.HasPrefix(name, "an event") {
				m := Message{Type: TypeEvent, Sub: "unknown", Event: signed(t, r, "x")}
				frame = string(m.Append(nil, false))
			}
			for n := range maxGarbage {
				if err := (relayLink{r}).handleFrame(websocket.MessageText, []byte(frame), start); err != nil {
					t.Fatalf("after %d: %v, want nil", n, err)
				}
			}
			err := relayLink{r}.handleFrame(websocket.MessageText, []byte(frame), start.Add(59*time.Second))
			if !errors.Is(err, errGarbage) {
				t.Fatalf("the next one: %v, want the link to be cut", err)
			}
			if got := r.linkLost(err, start); got != quarantine {
				t.Errorf("wait %v, want %v", got, quarantine)
			}
		})
	}
}

func TestALinkThatWasCutIsNotAskedForTheSameAgain(t *testing.T) {
	t.Parallel()
	const up = 10 * time.Minute
	for _, c := range []struct {
		name string
		err  error
		want time.Duration // since, after the start
	}{
		{"by offences", errFlood, up - 2*time.Minute},
		{"by garbage", errGarbage, up - 2*time.Minute},
		{"by a message without end", errTooLarge, up - 2*time.Minute},
		{"by the network", net.ErrClosed, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := testRelay(t, nil)
			subscribe(r)
			wantSent(t, r, start, TypeReq) // and no EOSE follows
			relayLink{r}.recordContact(start.Add(up))
			r.linkLost(c.err, start.Add(up))
			later := start.Add(up + quarantine)
			r.setPhase(linkUp, later)
			m := wantSent(t, r, later, TypeReq)[0]
			if got := time.Duration(m.Filters[0].Since-start.Unix()) * time.Second; got != c.want {
				t.Errorf("asked since %v after the start, want %v", got, c.want)
			}
		})
	}
}
