package testwait

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// stubTest is a test whose binary has a deadline, and that records how it failed.
type stubTest struct {
	testing.TB
	ctx      context.Context
	deadline time.Time
	failure  string
	cleanups []func()
}

func (s *stubTest) Helper()                     {}
func (s *stubTest) Context() context.Context    { return s.ctx }
func (s *stubTest) Deadline() (time.Time, bool) { return s.deadline, !s.deadline.IsZero() }
func (s *stubTest) Cleanup(f func())            { s.cleanups = append(s.cleanups, f) }
func (s *stubTest) Fatalf(format string, args ...any) {
	s.failure = fmt.Sprintf(format, args...)
	panic(s)
}

// run calls f, which may fail, and returns the message of the failure.
func (s *stubTest) run(f func()) string {
	defer func() {
		for _, cleanup := range s.cleanups {
			cleanup()
		}
		if r := recover(); r != nil && r != any(s) {
			panic(r)
		}
	}()
	f()
	return s.failure
}

func TestWaitsEndBeforeTheDeadlineOfTheTestBinary(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]func(testing.TB){
		"until":   func(t testing.TB) { Until(t, "the ship comes in", func() bool { return false }) },
		"receive": func(t testing.TB) { Receive(t, "the ship comes in", make(chan int)) },
	} {
		s := &stubTest{ctx: t.Context(), deadline: time.Now().Add(reserve)}
		s.run(func() { wait(s) })
		if !strings.HasPrefix(s.failure, "did not happen before the test binary's deadline: the ship comes in\ngoroutine ") {
			t.Errorf("%s: %.200q", name, s.failure)
		}
	}
}

func TestWaitsEndWhenTheConditionHolds(t *testing.T) {
	t.Parallel()
	n := 0
	Until(t, "three polls", func() bool { n++; return n == 3 })
	c := make(chan int, 1)
	c <- 7
	if got := Receive(t, "a value", c); n != 3 || got != 7 {
		t.Errorf("%d polls, received %d", n, got)
	}
}

func TestContextOutlivesTheTestInACleanup(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Context(&stubTest{ctx: ended}).Err(); err != nil {
		t.Error(err)
	}
}
