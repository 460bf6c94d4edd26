// Interop runs a relay of another implementation, for `make interop`.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

// store stores events in memory, which khatru leaves to its users.
type store struct {
	mu     sync.Mutex
	events []*nostr.Event
}

func (s *store) save(_ context.Context, e *nostr.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
	return nil
}

func (s *store) remove(_ context.Context, gone *nostr.Event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = slices.DeleteFunc(s.events, func(e *nostr.Event) bool { return e.ID == gone.ID })
	return nil
}

func (s *store) query(_ context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := make(chan *nostr.Event, len(s.events))
	defer close(found)
	for _, e := range slices.Backward(s.events) {
		if f.Matches(e) && (f.Limit == 0 || len(found) < f.Limit) {
			found <- e
		}
	}
	return found, nil
}

func run() error {
	s := new(store)
	relay := khatru.NewRelay()
	relay.StoreEvent = append(relay.StoreEvent, s.save)
	relay.QueryEvents = append(relay.QueryEvents, s.query)
	relay.DeleteEvent = append(relay.DeleteEvent, s.remove)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("ws://%s\n", l.Addr())
	server := &http.Server{Handler: relay, ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(l)
}
