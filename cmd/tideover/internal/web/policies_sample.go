package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"
)

// How many runs are read for the waits that policies led to.
const (
	sampledFlows  = 40  // workflows
	sampledRuns   = 12  // of a workflow, in full
	sampledNewest = 100 // of a workflow, in a list
	sampleTime    = 5 * time.Second
)

// waitSamples caches the waits that policies led to.
type waitSamples struct {
	mu    sync.Mutex
	at    time.Time
	waits map[string][]used // by the text of the policy
}

// get returns waits by policy, and when they were collected.
func (s *waitSamples) get(ctx context.Context, collect func(context.Context) (map[string][]used, error), now time.Time) (map[string][]used, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.at) < sampleTime {
		return s.waits, s.at, nil
	}
	waits, err := collect(ctx)
	if err != nil {
		return nil, now, err
	}
	s.waits, s.at = waits, now
	return waits, now, nil
}

// shortID returns a short id of a text, for fragments of URLs.
func shortID(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}
