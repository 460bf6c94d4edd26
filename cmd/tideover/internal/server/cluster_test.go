package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/outbox"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/gateway"
	"github.com/tideover/tideover/retry"
)

// almanac is an engine that does not take schedules at once.
type almanac struct {
	mu    sync.Mutex
	tries int
	fail  int // so many times
	hang  bool
	has   string
}

func (a *almanac) set(ctx context.Context, list []engine.Schedule) error {
	a.mu.Lock()
	a.tries++
	fail, hang := a.tries <= a.fail, a.hang
	a.mu.Unlock()
	switch {
	case hang:
		<-ctx.Done()
		return ctx.Err()
	case fail:
		return errors.New("shard 3: no process has the shard")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.has = list[0].Name
	return nil
}

func (a *almanac) state() (has string, tries int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.has, a.tries
}

func newTestCalendar(a *almanac) *calendar {
	return &calendar{set: a.set, log: slog.New(slog.DiscardHandler), latest: make(chan []engine.Schedule, 1)}
}

func named(name string) []engine.Schedule { return []engine.Schedule{{Name: name}} }

func TestSchedulesAreToldUntilTheyAreTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &almanac{fail: 5}
		c := newTestCalendar(a)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		c.plan(named("first"))
		go func() { done <- c.run(ctx) }()
		time.Sleep(5 * time.Minute)
		if has, tries := a.state(); has != "first" || tries != 6 {
			t.Errorf("after %d tries it has %q", tries, has)
		}
		c.plan(named("second"))
		synctest.Wait()
		if has, tries := a.state(); has != "second" || tries != 7 {
			t.Errorf("after %d tries it has %q", tries, has)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestNewSchedulesTakeTheirPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &almanac{hang: true}
		c := newTestCalendar(a)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		c.plan(named("first"))
		go func() { done <- c.run(ctx) }()
		synctest.Wait()
		a.mu.Lock()
		a.hang = false
		a.mu.Unlock()
		c.plan(named("second"))
		c.plan(named("third"))
		synctest.Wait()
		if has, _ := a.state(); has != "third" {
			t.Errorf("it has %q", has)
		}
		a.mu.Lock()
		a.hang = true
		a.mu.Unlock()
		c.plan(named("last")) // which is under way when all ends
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAFolderWithRunsIsNotLeftBehind(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := left(filepath.Join(dir, "none")); err != nil {
		t.Errorf("no folder: %v", err)
	}
	if err := left(dir); err != nil {
		t.Errorf("an empty folder: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "log.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := left(dir); err == nil || !strings.Contains(err.Error(), "tideover move") {
		t.Errorf("a folder with runs: %v", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "blobs", "moved"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := left(dir); err != nil {
		t.Errorf("a folder whose runs were moved: %v", err)
	}
}

// TestWorkRestsThatOthersMayKnow has a step name what this process does not have.
func TestWorkRestsThatOthersMayKnow(t *testing.T) {
	t.Parallel()
	plain := errors.New("oops")
	failing := func(err error) engine.Handler {
		return func(context.Context, *engine.Task) ([]byte, error) { return nil, err }
	}
	handlers := map[string]engine.Handler{
		"fine":     func(context.Context, *engine.Task) ([]byte, error) { return []byte("1"), nil },
		"plain":    failing(plain),
		"provider": failing(retry.Permanent(fmt.Errorf("%w: p", gateway.ErrUnknownProvider))),
		"notifier": failing(retry.Permanent(fmt.Errorf("n %w", outbox.ErrUnknown))),
	}
	elsewhere(handlers)
	if out, err := handlers["fine"](t.Context(), nil); string(out) != "1" || err != nil {
		t.Errorf("fine: %q, %v", out, err)
	}
	if _, err := handlers["plain"](t.Context(), nil); !errors.Is(err, plain) {
		t.Errorf("plain: %v", err)
	}
	for _, name := range []string{"provider", "notifier"} {
		_, err := handlers[name](t.Context(), nil)
		if err == nil || retry.OutcomeOf(err).Class == retry.ClassPermanent {
			t.Errorf("%s: %v is final", name, err)
		}
	}
}
