package contend_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/retry"
)

var errTaken = errors.New("wrong last sequence")

// losing returns a proposal that loses n times and then succeeds, and records
// each Try.
func losing(n int) (propose func(context.Context, contend.Try) error, tries *[]contend.Try) {
	tries = new([]contend.Try)
	return func(_ context.Context, try contend.Try) error {
		*tries = append(*tries, try)
		if len(*tries) <= n {
			return contend.Lost(len(*tries), errTaken)
		}
		return nil
	}, tries
}

func TestALoserTriesAgainUntilItWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		propose, tries := losing(6)
		start := time.Now()
		if err := contend.Must("contention").Do(t.Context(), propose); err != nil {
			t.Fatal(err)
		}
		for i, try := range *tries {
			winner, ok := contend.Winner[int](try.Lost)
			if try.Number != i+1 || winner != i || ok != (i > 0) || try.Unsure {
				t.Errorf("attempt %d saw %+v", i+1, try)
			}
		}
		if took := time.Since(start); took < 630*time.Millisecond || took > 945*time.Millisecond {
			t.Errorf("six retries waited %v, want 630ms to 945ms", took)
		}
	})
}

func TestAfterSixRetriesItGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		propose, tries := losing(99)
		err := contend.Must("contention").Do(t.Context(), propose)
		if want := "max proposal retries exceeded: lost to another writer's value: wrong last sequence"; err == nil || err.Error() != want {
			t.Errorf("error %q, want %q", err, want)
		}
		if !errors.Is(err, contend.ErrRetries) || !errors.Is(err, errTaken) || !errors.Is(err, retry.StopAttempts) {
			t.Errorf("%v does not wrap ErrRetries, the last conflict and the reason", err)
		}
		if errors.Is(err, contend.ErrUnsure) || errors.Is(err, contend.ErrTimeout) {
			t.Errorf("%v is more than it should be", err)
		}
		if winner, ok := contend.Winner[int](err); !ok || winner != 7 || len(*tries) != 7 {
			t.Errorf("winner %v %v after %d attempts, want 7 after 7", winner, ok, len(*tries))
		}
		var e *contend.Error
		if !errors.As(err, &e) || e.Err.Attempts != 7 || len(e.Err.History()) != 7 {
			t.Errorf("%+v, want 7 attempts in the history", e)
		}
	})
}

func TestTheWaitsAreThePolicys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		w := contend.Must("contention", contend.WithRand(func() uint64 { return math.MaxUint64 / 2 }),
			contend.WithObserver(func(e retry.Event) {
				if e.Kind == retry.Waiting {
					waits = append(waits, e.Delay)
				}
			}))
		propose, _ := losing(6)
		if err := w.Do(t.Context(), propose); err != nil {
			t.Fatal(err)
		}
		var want []time.Duration
		p, _ := retry.Preset("contention")
		for k := range p.Retries() {
			want = append(want, retry.Decide(p, retry.State{Attempt: k + 1}, retry.Outcome{}, retry.Gates{}, math.MaxUint64/2).Wait)
		}
		if !reflect.DeepEqual(waits, want) {
			t.Errorf("waits %v, want those of retry.Decide %v", waits, want)
		}
	})
}

func TestAProposalThatIsNeverAnsweredEnds(t *testing.T) {
	for _, attempts := range []int{1, 7} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			err := contend.Must(fmt.Sprintf("contention attempts=%d", attempts)).Do(t.Context(), func(ctx context.Context, _ contend.Try) error {
				<-ctx.Done()
				return ctx.Err()
			})
			if time.Since(start) != 30*time.Second {
				t.Errorf("ended after %v, want 30s", time.Since(start))
			}
			if attempts > 1 && (!errors.Is(err, contend.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded)) {
				t.Errorf("%v is no timeout", err)
			}
			if !errors.Is(err, contend.ErrUnsure) {
				t.Errorf("%v does not say that the outcome is unknown", err)
			}
		})
	}
}

func TestTheTimeoutCoversAllAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		err := contend.Must("contention total-timeout=1s").Do(t.Context(), func(ctx context.Context, _ contend.Try) error {
			n++
			select {
			case <-time.After(250 * time.Millisecond): // with the waits, the fourth attempt begins after 0.82 to 0.86 s
				return contend.Lost(nil, errTaken)
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		if n != 4 || !errors.Is(err, contend.ErrTimeout) {
			t.Errorf("%v after %d attempts, want a timeout in the fourth", err, n)
		}
	})
}

func TestAWaitEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		time.AfterFunc(5*time.Millisecond, func() { cancel(enough) })
		propose, tries := losing(99)
		start := time.Now()
		err := contend.Must("contention").Do(ctx, propose)
		if !errors.Is(err, context.Canceled) || !errors.Is(err, enough) || !errors.Is(err, errTaken) {
			t.Errorf("%v, want the cancellation, its cause and the conflict", err)
		}
		if time.Since(start) != 5*time.Millisecond || len(*tries) != 1 || errors.Is(err, contend.ErrUnsure) {
			t.Errorf("%v after %v and %d attempts, want a sure one at once", err, time.Since(start), len(*tries))
		}
	})
}

func TestWhatIsTriedAgain(t *testing.T) {
	sqlLost := contend.WithConflicts(contend.SQLConflict)
	tests := []struct {
		name     string
		err      error
		attempts int
		unsure   bool
	}{
		{"a conflict is", contend.Lost(nil, nil), 7, false},
		{"and one that is wrapped", fmt.Errorf("put: %w", contend.Lost(nil, nil)), 7, false},
		{"and one that calls itself permanent", contend.Lost(nil, retry.Permanent(io.EOF)), 7, false},
		{"a permanent error that wraps a conflict is not", retry.Permanent(contend.Lost(nil, nil)), 1, false},
		{"a serialisation failure is", sqlError{"40001"}, 7, false},
		{"and a deadlock", sqlError{"40P01"}, 7, false},
		{"a broken constraint is not", sqlError{"23505"}, 1, false},
		{"nor an error that says nothing", io.EOF, 1, false},
		{"nor a permanent one", retry.Permanent(io.EOF), 1, false},
		{"a throttled one is", retry.Throttled(io.EOF), 7, false},
		{"and an unsure one", contend.Unsure(io.EOF), 7, true},
		{"an unsure conflict stays unsure", contend.Unsure(contend.Lost(nil, nil)), 7, true},
		{"a permanent unsure one is not", retry.Permanent(contend.Unsure(io.EOF)), 1, true},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			n := 0
			err := contend.Must("contention", sqlLost).Do(t.Context(), func(context.Context, contend.Try) error { n++; return tt.err })
			if n != tt.attempts || errors.Is(err, contend.ErrUnsure) != tt.unsure {
				t.Errorf("%s: %d attempts, want %d; unsure %v in %v", tt.name, n, tt.attempts, !tt.unsure, err)
			}
			if tt.unsure != (retry.OutcomeOf(err).Class == retry.ClassPermanent) && n > 1 {
				t.Errorf("%s: a runner around sees %v", tt.name, retry.OutcomeOf(err).Class)
			}
		})
	}
	if contend.Unsure(nil) != nil {
		t.Error("a mark of nil is not nil")
	}
}

func TestUnsureStaysUntilItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saw []bool
		answers := []error{contend.Lost(nil, nil), contend.Unsure(io.EOF), contend.Lost(nil, nil), nil}
		err := contend.Must("contention").Do(t.Context(), func(_ context.Context, try contend.Try) error {
			if n := try.Number; (try.Lost != nil) != (n == 2 || n == 4) {
				t.Errorf("attempt %d: lost %v, want that of the attempt before only", n, try.Lost)
			}
			saw = append(saw, try.Unsure)
			return answers[try.Number-1]
		})
		if want := []bool{false, false, true, true}; err != nil || !reflect.DeepEqual(saw, want) {
			t.Errorf("unsure %v and %v, want %v", saw, err, want)
		}
	})
}

func TestTheTimeoutOfAnAttemptIsUnsure(t *testing.T) {
	hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	synctest.Test(t, func(t *testing.T) {
		w, n := contend.Must("contention attempt-timeout=1s"), 0
		err := w.Do(t.Context(), func(ctx context.Context, _ contend.Try) error { n++; return hang(ctx) })
		if n != 1 || !errors.Is(err, contend.ErrUnsure) || errors.Is(err, contend.ErrTimeout) {
			t.Errorf("unmarked: %v after %d attempts, want it unsure after 1", err, n)
		}
		n = 0
		err = w.Do(t.Context(), func(ctx context.Context, try contend.Try) error {
			if n++; try.Unsure {
				return nil
			}
			return contend.Unsure(hang(ctx))
		})
		if n != 2 || err != nil {
			t.Errorf("marked: %v after %d attempts, want success after 2", err, n)
		}
	})
}

func TestManyWritersAllWin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, w := &cell{}, contend.Must("contention attempts=unlimited", contend.WithSeed(1))
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				_, err := contend.Do(t.Context(), w, func(context.Context, contend.Try) (string, error) {
					value, version := store.get()
					time.Sleep(time.Millisecond)
					mine := fmt.Sprintf("%s<%d>", value, i)
					if _, ok := store.set(mine, version); !ok {
						return "", contend.Lost(nil, nil)
					}
					return mine, nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		value, version := store.get()
		if version != 20 || strings.Count(value, "<") != 20 {
			t.Errorf("%d writes left %q, want 20", version, value)
		}
		for i := range 20 {
			if strings.Count(value, fmt.Sprintf("<%d>", i)) != 1 {
				t.Errorf("writer %d is not there once: %q", i, value)
			}
		}
	})
}

func TestDoReturnsNothingBesideAnError(t *testing.T) {
	v, err := contend.Do(t.Context(), contend.Must("fixed(0s)"), func(context.Context, contend.Try) (int, error) { return 5, io.EOF })
	if v != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("%v, %v; want 0 and EOF", v, err)
	}
	if _, err := contend.Do[int](t.Context(), contend.Must("fixed(0s)"), nil); err == nil {
		t.Error("a missing function is no error")
	}
	propose := func(context.Context, contend.Try) error { return nil }
	for name, err := range map[string]error{
		"no writer":         (*contend.Writer)(nil).Do(t.Context(), propose),
		"a writer not made": new(contend.Writer).Do(t.Context(), propose),
		"no context":        contend.Must("fixed(0s)").Do(nil, propose), //nolint:staticcheck // what is tested
	} {
		if err == nil {
			t.Errorf("%s is no error", name)
		}
	}
}
