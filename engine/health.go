package engine

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/logsample"
)

// health is what is wrong at the moment.
type health struct {
	mu       sync.Mutex
	troubles [4]trouble
	warnings []Trouble
	wrong    error                     // for good
	logged   logsample.Sampler[string] // by message
	cfg      *Config
}

// init sets how often a trouble that goes on is logged.
func (h *health) init(cfg *Config) { h.cfg, h.logged.Every = cfg, time.Minute }

// logError logs an error, at most once a minute for each message.
func (h *health) logError(message string, args ...any) {
	if ok, _ := h.logged.Allow(message, time.Now()); ok {
		h.cfg.Logger.Error(message, args...)
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

// list returns what keeps the shard from doing its work at the moment.
func (h *health) list() (list []Trouble) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, what := range [...]string{"can't store what happens", "can't write the view", "can't write a snapshot", "can't go on: attempts wait for runs that can't begin (deadlock)"} {
		if t := h.troubles[i]; t.err != nil {
			list = append(list, Trouble{what, t.since, h.cfg.Redact(t.err.Error())})
		}
	}
	return list
}

// listWarnings returns what someone should look at, while the shard does its work.
func (h *health) listWarnings() []Trouble {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := slices.Clone(h.warnings)
	for i := range list {
		list[i].Error = h.cfg.Redact(list[i].Error)
	}
	return list
}

// listFor returns the troubles with the number of the shard.
func (h *health) listFor(shard int) []Trouble {
	list := h.list()
	for i := range list {
		list[i].What = "shard " + strconv.Itoa(shard) + " " + list[i].What
	}
	return list
}
