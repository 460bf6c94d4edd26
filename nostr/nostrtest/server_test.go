package nostrtest_test

import (
	"errors"
	"net"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

func TestCutResetsEveryLink(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	link := dial(t, r)
	link.quiet()
	if n := r.Connections(); n != 1 {
		t.Fatalf("Connections: got %d, want 1", n)
	}
	r.Cut()
	if n := r.Connections(); n != 0 {
		t.Errorf("Connections: got %d, want 0", n)
	}
	if err := link.lost(); websocket.CloseStatus(err) != -1 || !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the link ended with %v, want a reset", err)
	}
	dial(t, r).quiet()
}

func TestAClientCanSayGoodbye(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	link := dial(t, r)
	link.quiet()
	if err := link.conn.Close(websocket.StatusNormalClosure, ""); err != nil {
		t.Errorf("Close: %v", err)
	}
	r.Await(t, func([]*nostr.Event) bool { return r.Connections() == 0 })
}

func TestAnOutageKeepsPortAndEvents(t *testing.T) {
	t.Parallel()
	r := nostrtest.New(t)
	link := dial(t, r)
	link.publish(newNote(t, 100, "a"))
	link.want("OK true")
	r.Stop()
	r.Stop() // is stopped already
	if err := link.lost(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the link ended with %v, want a reset", err)
	}
	addr := strings.TrimPrefix(r.URL(), "ws://")
	if _, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial while stopped: got %v, want refused", err)
	}
	if err := r.Restart(); err != nil {
		t.Fatal(err)
	}
	link = dial(t, r)
	link.send(`["REQ","s",{}]`)
	link.want("EVENT s a", "EOSE s")
}

func TestAClosedRelayDoesNotComeBack(t *testing.T) {
	t.Parallel()
	r, err := nostrtest.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.Inject(newNote(t, 100, "a"))
	r.Close()
	r.Close()
	r.Cut()
	if err := r.Restart(); err == nil {
		t.Error("Restart: got no error")
	}
	if n := len(r.Events()); n != 1 {
		t.Errorf("%d events can be looked at, want 1", n)
	}
}

func TestStartSaysWhyItCanNot(t *testing.T) {
	t.Parallel()
	taken := strings.TrimPrefix(nostrtest.New(t).URL(), "ws://")
	if _, err := nostrtest.Start(taken); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("Start: got %v, want an address in use", err)
	}
}

// Not parallel: it counts goroutines.
func TestNothingIsLeftOfAClosedRelay(t *testing.T) {
	before := runtime.NumGoroutine()
	r, err := nostrtest.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := strings.TrimPrefix(r.URL(), "ws://")
	idle, err := net.Dial("tcp", addr) // a connection that sends nothing
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	a, b := dial(t, r), dial(t, r)
	a.quiet()
	b.quiet()
	r.Change(func(f *nostrtest.Faults) { f.OKDelay = time.Hour })
	a.publish(newNote(t, 100, "a"))
	r.Await(t, func(stored []*nostr.Event) bool { return len(stored) == 1 })
	r.Change(func(f *nostrtest.Faults) { f.Mute, f.DialDelay = true, time.Hour })
	b.send(`["REQ","s",{}]`)
	r.Close()
	a.lost()
	b.lost()
	a.conn.CloseNow()
	b.conn.CloseNow()
	testwait.Until(t, "all goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}
