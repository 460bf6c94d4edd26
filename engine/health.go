package engine

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// health is what is wrong at the moment.
type health struct {
	mu       sync.Mutex
	troubles [4]trouble
	warnings []Trouble
	wrong    error                // for good
	said     map[string]time.Time // log lines, and when each was last written
}

// sayAgain is how often a trouble that goes on is logged.
const sayAgain = time.Minute

// complain logs an error, at most once a minute for each message.
func (sh *shard) complain(message string, args ...any) {
	h := &sh.health
	h.mu.Lock()
	last, ok := h.said[message]
	again := !ok || time.Since(last) >= sayAgain
	if again {
		if h.said == nil {
			h.said = map[string]time.Time{}
		}
		h.said[message] = time.Now()
	}
	h.mu.Unlock()
	if again {
		sh.cfg.Logger.Error(message, args...)
	}
}

type trouble struct {
	err   error
	since time.Time
}

const (
	troubleStore = iota
	troubleView
	troubleSnapshot
	troubleDeadlock
)

func (h *health) set(which int, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := &h.troubles[which]
	if err != nil && t.err == nil {
		t.since = time.Now()
	}
	t.err = err
}

func (h *health) get(which int) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.troubles[which].err
}

func (h *health) storing(err error)      { h.set(troubleStore, err) }
func (h *health) viewing(err error)      { h.set(troubleView, err) }
func (h *health) snapshotting(err error) { h.set(troubleSnapshot, err) }
func (h *health) view() error            { return h.get(troubleView) }

// warn replaces the warnings.
func (h *health) warn(list []Trouble) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.warnings = list
}

// broken notes that the engine contradicts itself, which stops it before
// anything of that is stored.
func (h *health) broken(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wrong == nil {
		h.wrong = fmt.Errorf("this is an error of tideover: %w", err)
	}
}

func (h *health) fatal() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.wrong
}

// Trouble is something that keeps the engine from doing its work.
type Trouble struct {
	What  string    `json:"what"`
	Since time.Time `json:"since"`
	Error string    `json:"error"`
}

// troubles returns what keeps the shard from doing its work at the moment.
func (sh *shard) troubles() (list []Trouble) {
	h := &sh.health
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, what := range [...]string{"can't store what happens", "can't write the view", "can't write a snapshot", "can't go on: attempts wait for runs that can't begin (deadlock)"} {
		if t := h.troubles[i]; t.err != nil {
			list = append(list, Trouble{what, t.since, sh.cfg.Redact(t.err.Error())})
		}
	}
	return list
}

// warnings returns what someone should look at, while the shard does its work.
func (sh *shard) warnings() []Trouble {
	sh.health.mu.Lock()
	defer sh.health.mu.Unlock()
	list := slices.Clone(sh.health.warnings)
	for i := range list {
		list[i].Error = sh.cfg.Redact(list[i].Error)
	}
	return list
}

// named returns the troubles with the shard's number.
func (sh *shard) named() []Trouble {
	list := sh.troubles()
	for i := range list {
		list[i].What = "shard " + strconv.Itoa(sh.number) + " " + list[i].What
	}
	return list
}
