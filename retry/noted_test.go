package retry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestFailuresAreReadable(t *testing.T) {
	t.Parallel()
	for want, f := range map[string]Failure{
		"attempt 1: flaky; waited 100ms, set by server": {Attempt: 1, Err: errors.New("flaky"), Wait: 100 * time.Millisecond, By: ByServer},
		"attempt 2: flaky": {Attempt: 2, Err: errors.New("flaky")},
	} {
		if got := fmt.Sprint(f); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// about is an error with a note.
type about struct{ error }

func (about) RetryNote() string { return "the third shelf" }

func TestEventsOfNotedErrors(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var notes []string
	r := Must("fixed(0s) attempts=2", WithLogger(slog.New(slog.NewTextHandler(&log, nil))), WithObserver(func(e Event) {
		notes = append(notes, e.Kind.String()+" "+e.Note)
	}))
	_ = r.Do(t.Context(), func(context.Context) error { return fmt.Errorf("wrapped: %w", about{errFlaky}) })
	const on = " the third shelf"
	if want := []string{"attempt-started ", "attempt-failed" + on, "waiting" + on, "attempt-started ", "attempt-failed" + on, "gave-up" + on}; !slices.Equal(notes, want) {
		t.Errorf("got %q, want %q", notes, want)
	}
	if n := strings.Count(log.String(), `note="the third shelf"`); n != 2 {
		t.Errorf("the log has it %d times: %s", n, log.String())
	}
}

func TestAFinalFailureIsNotCalledPermanent(t *testing.T) {
	t.Parallel()
	r := Must("fixed(0s) attempts=2")
	err := r.Do(t.Context(), func(context.Context) error { return &leftError{errFlaky} })
	if text := err.Error(); strings.Contains(text, "permanent") || !errors.Is(err, StopPermanent) {
		t.Error(text)
	}
	if err = r.Do(t.Context(), func(context.Context) error { return Permanent(errFlaky) }); !strings.Contains(err.Error(), "permanent failure") {
		t.Error(err)
	}
}
