package contend_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/contend"
	"github.com/tideover/tideover/retry"
)

type snapshot struct {
	value   string
	version int
}

// adding returns an update that adds the word to the store's value. lossy
// decides what happens to a write.
func adding(c *cell, word string, lossy func(write func() bool) error) contend.Update[snapshot, int] {
	return contend.Update[snapshot, int]{
		Read: func(context.Context) (s snapshot, err error) {
			s.value, s.version = c.get()
			return s, nil
		},
		Write: func(_ context.Context, s snapshot) (int, error) {
			write := func() bool { _, ok := c.set(s.value+word, s.version); return ok }
			return s.version + 1, lossy(write)
		},
		Mine: func(s snapshot) (int, bool) { return s.version, strings.Contains(s.value, word) },
	}
}

// Writes over a connection that loses requests and responses, or delivers them
// late: every word is stored at most once, is stored if the update succeeds,
// and is not stored if the update fails without ErrUnsure.
func TestAnUpdateIsNeverWrittenTwiceNorLost(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) { stormyUpdates(t, seed) })
	}
}

func stormyUpdates(t *testing.T, seed uint64) {
	t.Helper()
	store, w := &cell{}, contend.Must("contention attempts=9", contend.WithSeed(seed))
	var all, late sync.WaitGroup
	errs := make([]error, 5)
	for i := range errs {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		all.Go(func() {
			_, errs[i] = adding(store, fmt.Sprintf("<%d>", i), func(write func() bool) error {
				time.Sleep(time.Duration(r.IntN(5)) * time.Millisecond)
				switch r.IntN(5) {
				case 0: // the request is lost
					return io.EOF
				case 1: // it is late
					delay := time.Duration(r.IntN(500)) * time.Millisecond
					late.Go(func() { time.Sleep(delay); write() })
					return io.EOF
				case 2: // the answer is lost
					write()
					return io.EOF
				}
				if !write() {
					return contend.Lost(nil, errTaken)
				}
				return nil
			}).Do(t.Context(), w)
		})
	}
	all.Wait()
	late.Wait()
	value, _ := store.get()
	for i, err := range errs {
		n := strings.Count(value, fmt.Sprintf("<%d>", i))
		switch {
		case n > 1:
			t.Errorf("seed %d: %d is written %d times: %s", seed, i, n, value)
		case err == nil && n == 0:
			t.Errorf("seed %d: %d is said to be written, and is not: %s", seed, i, value)
		case err != nil && n == 1 && !errors.Is(err, contend.ErrUnsure):
			t.Errorf("seed %d: %d is written, and its error is sure: %v", seed, i, err)
		}
	}
}

func TestTheLastLookFindsAWriteThatWon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &cell{}
		version, err := adding(store, "<1>", func(write func() bool) error { write(); return io.EOF }).
			Do(t.Context(), contend.Must("contention attempts=1"))
		if version != 1 || err != nil {
			t.Errorf("%d, %v; want version 1", version, err)
		}
	})
}

func TestWithoutMineAnAmbiguousAnswerEndsTheUpdate(t *testing.T) {
	store, n := &cell{}, 0
	u := adding(store, "<1>", func(func() bool) error { n++; return io.EOF })
	u.Mine = nil
	_, err := u.Do(t.Context(), contend.Must("contention"))
	if n != 1 || !errors.Is(err, contend.ErrUnsure) || !errors.Is(err, io.EOF) {
		t.Errorf("%v after %d writes, want an unsure end after 1", err, n)
	}
	if _, err := (contend.Update[int, int]{}).Do(t.Context(), contend.Must("contention")); err == nil {
		t.Error("an update without parts is no error")
	}
}

func TestAFailedReadIsSureAndTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, n := &cell{}, 0
		u := adding(store, "<1>", func(write func() bool) error { write(); return nil })
		read, failure := u.Read, io.EOF
		u.Read = func(ctx context.Context) (snapshot, error) {
			if n++; n < 3 {
				return snapshot{}, failure
			}
			return read(ctx)
		}
		if _, err := u.Do(t.Context(), contend.Must("contention")); err != nil || n != 3 {
			t.Errorf("%v after %d reads, want success after 3", err, n)
		}
		n, failure = 0, retry.Permanent(io.EOF)
		if _, err := u.Do(t.Context(), contend.Must("contention")); !errors.Is(err, io.EOF) || errors.Is(err, contend.ErrUnsure) || n != 1 {
			t.Errorf("%v after %d reads, want a sure end after 1", err, n)
		}
	})
}

// statusError is like errors that say whether a failure is temporary, and not
// whether something was written.
type statusError int

func (s statusError) Error() string               { return fmt.Sprint("status ", int(s)) }
func (s statusError) RetryOutcome() retry.Outcome { return retry.Outcome{} }

func TestAnErrorThatMayPassIsNoWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, failure := range []error{statusError(504), fmt.Errorf("inner: %w", statusError(504)), io.ErrUnexpectedEOF} {
			written := 0
			u := contend.Update[int, int]{
				Read: func(context.Context) (int, error) { return written, nil },
				Write: func(context.Context, int) (int, error) {
					if written++; written == 1 {
						return 0, failure // it was done, and the answer was lost
					}
					return written, nil
				},
				Mine: func(n int) (int, bool) { return n, n > 0 },
			}
			if n, err := u.Do(t.Context(), contend.Must("contention")); n != 1 || err != nil || written != 1 {
				t.Errorf("%v: Update = %d, %v, written %d times; want once", failure, n, err, written)
			}
			tries := 0
			err := contend.Must("contention").Do(t.Context(), func(context.Context, contend.Try) error { tries++; return failure })
			if tries != 1 || !errors.Is(err, failure) {
				t.Errorf("%v: Do = %v after %d attempts; want one", failure, err, tries)
			}
		}
	})
}
