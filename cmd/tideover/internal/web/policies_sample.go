package web

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"
)

// How many runs are looked at for the waits that policies led to.
const (
	sampledFlows  = 40  // workflows
	sampledRuns   = 12  // of a workflow, in full
	sampledNewest = 100 // of a workflow, in a list
	sampleTime    = 5 * time.Second
)

// samples are the waits that policies led to, for all who look at them.
type samples struct {
	mu    sync.Mutex
	at    time.Time
	waits map[string][]used // by the text of the policy
}

// look returns waits by policy, and when they were looked up.
func (s *samples) look(ctx context.Context, h *handler, now time.Time) (map[string][]used, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.at) < sampleTime {
		return s.waits, s.at, nil
	}
	waits, err := h.collect(ctx)
	if err != nil {
		return nil, now, err
	}
	s.waits, s.at = waits, now
	return waits, now, nil
}

// short8 names a text in addresses of parts of a page.
func short8(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:4])
}
