package nostrtest_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

func TestARefusedDialIsAnswered503(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{RefuseDial: true}))
	_, resp, err := websocket.Dial(testwait.Context(t), r.URL(), nil)
	if err == nil || resp == nil || resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("Dial: got %v, %v, want 503", resp, err)
	}
	r.Change(func(f *nostrtest.Faults) { f.RefuseDial = false })
	dial(t, r).quiet()
}

func TestADelayedDialIsNotAnsweredEarlier(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t, nostrtest.WithFaults(nostrtest.Faults{DialDelay: hour}))
	// real clock: a dial that is answered after an hour can only time out
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := websocket.Dial(ctx, r.URL(), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Dial: got %v, want a timeout", err)
	}
	r.Change(func(f *nostrtest.Faults) { f.DialDelay = 1 })
	dial(t, r).quiet()
}

func TestAMuteRelayAnswersNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		dial func(testing.TB, *nostrtest.Relay) *client
	}{
		{"on a link that is there", func(t testing.TB, r *nostrtest.Relay) *client {
			t.Helper()
			link := dial(t, r)
			link.quiet()
			r.Change(func(f *nostrtest.Faults) { f.Mute = true })
			return link
		}},
		{"on a new link", func(t testing.TB, r *nostrtest.Relay) *client {
			t.Helper()
			r.Change(func(f *nostrtest.Faults) { f.Mute = true })
			return dial(t, r)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := nostrtest.New(t)
			link := c.dial(t, r)
			link.publish(newNote(t, 100, "a"))
			reads := make(chan error, 1)
			go func() {
				_, _, err := link.conn.Read(t.Context()) // pongs are only handled during a read
				reads <- err
			}()
			// real clock: a ping that is not answered can only time out
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			if err := link.conn.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Ping: got %v, want a timeout", err)
			}
			if n := len(r.Events()); n != 0 {
				t.Errorf("%d events were read", n)
			}
			r.Change(func(f *nostrtest.Faults) { f.Mute = false })
			r.Await(t, func(stored []*nostr.Event) bool { return len(stored) == 1 }) // it was only late
			r.Cut()
			<-reads
		})
	}
}

func TestAMuteLinkCanBeCut(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	link := dial(t, r)
	link.quiet()
	r.Change(func(f *nostrtest.Faults) { f.Mute = true })
	link.send(`["REQ","s",{}]`)
	r.Cut()
	link.lost()
}
