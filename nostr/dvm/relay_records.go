package dvm

import (
	"errors"
	"sync"
	"time"

	"github.com/tideover/tideover/nostr"
)

var errForged = errors.New("an earlier event of this relay had a wrong signature")

// relayRecords is what a provider knows about each relay.
type relayRecords struct {
	mu     sync.Mutex
	stored map[string]bool      // relays that have sent all stored events
	first  map[string]time.Time // when the first event of the other relays arrived
	forged map[string]int       // forged events that nextForged has not reported yet
}

func newRelayRecords() relayRecords {
	return relayRecords{stored: map[string]bool{}, first: map[string]time.Time{}, forged: map[string]int{}}
}

// markStored records that the relay has sent all stored events.
func (s *relayRecords) markStored(relay string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored[relay] = true
}

// mayBeAnswered reports whether an earlier process may have answered the request.
// An event that arrives after all stored ones is new, unless its date is old.
func (s *relayRecords) mayBeAnswered(relay string, e *nostr.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.isStored(relay) || time.Since(unix(e.CreatedAt)) > liveFor
}

// isStored reports whether the relay has sent all stored events. Some relays never
// say so; for them it is true after storedAfter. The caller holds the lock.
func (s *relayRecords) isStored(relay string) bool {
	if !s.stored[relay] {
		first, ok := s.first[relay]
		if !ok {
			first = time.Now()
			s.first[relay] = first
		}
		s.stored[relay] = time.Since(first) >= storedAfter
	}
	return s.stored[relay]
}

// addForged counts a forged event of the relay.
func (s *relayRecords) addForged(relay string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forged[relay]++
}

// nextForged returns an error for each forged event of the relay, once.
func (s *relayRecords) nextForged(relay string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forged[relay] == 0 {
		return nil
	}
	s.forged[relay]--
	return errForged
}
