package dvm_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/retry"
)

type ctx = context.Context

// hangingHandler waits for the end of its context.
func hangingHandler(c ctx, _ *dvm.Request, _ func(dvm.Progress)) (dvm.Result, error) {
	<-c.Done()
	return dvm.Result{}, c.Err()
}

// fails returns a handler that fails n times before it succeeds.
func fails(n int, err error) dvm.Handler {
	return func(ctx, *dvm.Request, func(dvm.Progress)) (dvm.Result, error) {
		if n--; n >= 0 {
			return dvm.Result{}, err
		}
		return dvm.Result{Content: "42 sheep"}, nil
	}
}

// withTimeout sets the timeout of a request.
func withTimeout(seconds string) func(*nostr.Event) { return tagged(nostr.Tag{"timeout", seconds}) }

// TestJobs runs jobs in virtual time and compares the exact events, signatures
// included.
func TestJobs(t *testing.T) {
	t.Parallel()
	secret := errors.New("dial https://user:pw@db.internal/x: open /etc/secret: refused")
	for _, c := range []struct {
		name    string
		timeout string
		handler dvm.Handler
		change  func(*dvm.RunnerConfig)
		cancel  time.Duration // when the customer cancels; 0 means never
		want    []string
	}{
		{name: "success", timeout: "30", handler: fails(0, nil), want: []string{
			"0s processing Started", "0s success result 42 sheep"}},
		{name: "partial", timeout: "30", handler: func(ctx, *dvm.Request, func(dvm.Progress)) (dvm.Result, error) {
			return dvm.Result{Content: "some sheep", Partial: true}, nil
		}, want: []string{"0s processing Started", "0s partial result some sheep"}},
		{name: "retry-then-success", timeout: "30", handler: fails(2, secret), want: []string{
			"0s processing Started",
			"0s processing Retry 1/3 after error: dial https://… open …: refused",
			"1s processing Retry 2/3 after error: dial https://… open …: refused",
			"3s success result 42 sheep"}},
		{name: "exhausted", timeout: "30", handler: fails(9, errors.New("no sheep")), want: []string{
			"0s processing Started",
			"0s processing Retry 1/3 after error: no sheep",
			"1s processing Retry 2/3 after error: no sheep",
			"3s processing Retry 3/3 after error: no sheep",
			"7s error RETRY_EXHAUSTED: no sheep",
			`7s error result {"error":true,"code":"RETRY_EXHAUSTED","message":"no sheep","retry":{"attemptNumber":3,"maxRetries":3,"lastError":"no sheep","backoffHistory":[1000,2000,4000]}}`}},
		{name: "no-retries", timeout: "30", handler: fails(9, errors.New("no sheep")), change: func(c *dvm.RunnerConfig) { c.Policy.Attempts = 1 }, want: []string{
			"0s processing Started",
			"0s error RETRY_EXHAUSTED: no sheep",
			`0s error result {"error":true,"code":"RETRY_EXHAUSTED","message":"no sheep","retry":{"attemptNumber":0,"maxRetries":0,"lastError":"no sheep","backoffHistory":[]}}`}},
		{name: "permanent", timeout: "30", handler: fails(9, retry.Permanent(errors.New("wolves"))), want: []string{
			"0s processing Started",
			"0s error PERMANENT: wolves",
			`0s error result {"error":true,"code":"PERMANENT","message":"wolves","retry":{"attemptNumber":0,"maxRetries":3,"lastError":"wolves","backoffHistory":[]}}`}},
		{name: "panic", timeout: "30", handler: func(ctx, *dvm.Request, func(dvm.Progress)) (dvm.Result, error) { panic("no grass") },
			change: func(c *dvm.RunnerConfig) { c.Policy.Attempts = 2 }, want: []string{
				"0s processing Started",
				"0s processing Retry 1/1 after error: panic: no grass",
				"0s error RETRY_EXHAUSTED: panic: no grass",
				`0s error result {"error":true,"code":"RETRY_EXHAUSTED","message":"panic: no grass","retry":{"attemptNumber":1,"maxRetries":1,"lastError":"panic: no grass","backoffHistory":[0]}}`}},
		{name: "goexit", timeout: "30", handler: func(ctx, *dvm.Request, func(dvm.Progress)) (dvm.Result, error) { runtime.Goexit(); panic("never") },
			change: func(c *dvm.RunnerConfig) { c.Policy.Attempts = 1 }, want: []string{
				"0s processing Started",
				"0s error RETRY_EXHAUSTED: the handler ended its goroutine",
				`0s error result {"error":true,"code":"RETRY_EXHAUSTED","message":"the handler ended its goroutine","retry":{"attemptNumber":0,"maxRetries":0,"lastError":"the handler ended its goroutine","backoffHistory":[]}}`}},
		{name: "timeouts", timeout: "2", handler: hangingHandler, want: []string{
			"0s processing Started",
			"2s processing Retry 1/3 after error: Operation timed out after 2000ms",
			"5s processing Retry 2/3 after error: Operation timed out after 2000ms",
			"9s processing Retry 3/3 after error: Operation timed out after 2000ms",
			"15s error TIMEOUT: Operation timed out after 2000ms",
			`15s error result {"error":true,"code":"TIMEOUT","message":"Operation timed out after 2000ms","retry":{"attemptNumber":3,"maxRetries":3,"lastError":"Operation timed out after 2000ms","backoffHistory":[1000,2000,4000]}}`}},
		{name: "total-timeout", timeout: "2", handler: fails(9, errors.New("no sheep")), change: func(c *dvm.RunnerConfig) { c.Scope = dvm.Total }, want: []string{
			"0s processing Started",
			"0s processing Retry 1/3 after error: no sheep",
			"1s error RETRY_EXHAUSTED: no sheep",
			`1s error result {"error":true,"code":"RETRY_EXHAUSTED","message":"no sheep","retry":{"attemptNumber":1,"maxRetries":3,"lastError":"no sheep","backoffHistory":[1000]}}`}},
		{name: "total-timeout-of-one-that-hangs", timeout: "2", handler: hangingHandler, change: func(c *dvm.RunnerConfig) { c.Scope = dvm.Total }, want: []string{
			"0s processing Started",
			"2s error TIMEOUT: Operation timed out after 2000ms",
			`2s error result {"error":true,"code":"TIMEOUT","message":"Operation timed out after 2000ms","retry":{"attemptNumber":0,"maxRetries":3,"lastError":"Operation timed out after 2000ms","backoffHistory":[]}}`}},
		{name: "all-in-all", timeout: "600", handler: hangingHandler, change: func(c *dvm.RunnerConfig) { c.MaxTotal = 15 * time.Minute }, want: []string{
			"0s processing Started",
			"10m0s processing Retry 1/3 after error: Operation timed out after 600000ms",
			"15m0s error TIMEOUT: Operation timed out after 900000ms",
			`15m0s error result {"error":true,"code":"TIMEOUT","message":"Operation timed out after 900000ms","retry":{"attemptNumber":1,"maxRetries":3,"lastError":"Operation timed out after 900000ms","backoffHistory":[1000]}}`}},
		{name: "cancelled-while-running", timeout: "30", handler: hangingHandler, cancel: 5 * time.Second, want: []string{
			"0s processing Started", "5s error cancelled"}},
		{name: "cancelled-while-waiting", timeout: "30", handler: fails(9, errors.New("no sheep")), cancel: 2 * time.Second, want: []string{
			"0s processing Started",
			"0s processing Retry 1/3 after error: no sheep",
			"1s processing Retry 2/3 after error: no sheep",
			"2s error cancelled"}},
		{name: "progress", timeout: "60", handler: func(c ctx, _ *dvm.Request, report func(dvm.Progress)) (dvm.Result, error) {
			for i := range 20 {
				time.Sleep(time.Second) // real clock: it runs in a bubble
				report(dvm.Progress{Percent: 5 * (i + 1), ETA: time.Duration(19-i) * time.Second, Text: "counting"})
			}
			return dvm.Result{Content: "42 sheep"}, nil
		}, want: []string{
			"0s processing Started", "5s processing counting", "10s processing counting", "15s processing counting", "20s processing counting",
			"20s success result 42 sheep"}},
		{name: "too-long", timeout: "30", handler: func(ctx, *dvm.Request, func(dvm.Progress)) (dvm.Result, error) {
			return dvm.Result{Content: strings.Repeat("sheep", 20000)}, nil
		}, want: []string{
			"0s processing Started",
			"0s error PERMANENT: The result has 100000 bytes, at most 65536 can be published",
			`0s error result {"error":true,"code":"PERMANENT","message":"The result has 100000 bytes, at most 65536 can be published","retry":{"attemptNumber":0,"maxRetries":3,"lastError":"The result has 100000 bytes, at most 65536 can be published","backoffHistory":[]}}`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := new(fakeLink)
				change := c.change
				if change == nil {
					change = func(*dvm.RunnerConfig) {}
				}
				runner := newRunner(t, d, c.handler, change)
				r := newParsedRequest(t, time.Now(), withTimeout(c.timeout))
				r.Relay = "wss://relay.example"
				begun := time.Now()
				start(t, runner, r)
				if c.cancel > 0 {
					advance(c.cancel)
					if err := runner.Cancel(t.Context(), r.ID, stranger.PublicKey()); err == nil {
						t.Error("a stranger has cancelled it")
					}
					if err := runner.Cancel(t.Context(), r.ID, r.Customer); err != nil {
						t.Error(err)
					}
				}
				advance(time.Hour)
				equal(t, "the events", d.texts(begun), c.want)
				testfile.Golden(t, "testdata/"+c.name+".jsonl", lines(d.events()))
				for i, e := range d.events() {
					terminal := e.Kind != dvm.KindFeedback || e.Tags.Find("status").Value() == dvm.StatusError
					if (d.classes[i] == nostr.Result) != terminal {
						t.Errorf("event %d is published as %v", i, d.classes[i])
					}
				}
				if n := len(runner.Active()); n != 0 {
					t.Errorf("%d jobs are active", n)
				}
			})
		})
	}
}

func TestAnAttemptThatDoesNotStopIsNotRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, wall := new(fakeLink), make(chan struct{})
		calls := 0
		runner := newRunner(t, d, func(c ctx, r *dvm.Request, _ func(dvm.Progress)) (dvm.Result, error) {
			calls++
			<-wall
			return dvm.Result{Content: "late"}, nil
		}, func(c *dvm.RunnerConfig) { c.Workers = 1 })
		begun := time.Now()
		r := newParsedRequest(t, begun, withTimeout("2"))
		start(t, runner, r)
		next := newParsedRequest(t, begun, withTimeout("3"))
		start(t, runner, next)
		advance(time.Hour)
		equal(t, "the events", d.texts(begun), []string{
			"0s processing Started",
			"12s error TIMEOUT: Operation timed out after 2000ms and did not stop",
			`12s error result {"error":true,"code":"TIMEOUT","message":"Operation timed out after 2000ms and did not stop","retry":{"attemptNumber":0,"maxRetries":3,"lastError":"Operation timed out after 2000ms and did not stop","backoffHistory":[]}}`,
		})
		testfile.Golden(t, "testdata/stuck.jsonl", lines(d.events()))
		if s := runner.Stats(); s != (dvm.RunnerStats{Running: 1, Waiting: 1, Stuck: 1, Failed: 1}) || calls != 1 {
			t.Errorf("after %d calls: %+v", calls, s)
		}
		close(wall)
		synctest.Wait()
		// The next job has its worker, and the late result is dropped.
		if s := runner.Stats(); s != (dvm.RunnerStats{Late: 1, Failed: 1, Succeeded: 1}) || calls != 2 {
			t.Errorf("when it has ended, after %d calls: %+v", calls, s)
		}
		if n := len(d.events()); n != 5 {
			t.Errorf("%d events, want two more", n)
		}
	})
}

func TestALateResultIsDropped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := new(fakeLink)
		running, most := 0, 0
		runner := newRunner(t, d, func(c ctx, _ *dvm.Request, report func(dvm.Progress)) (dvm.Result, error) {
			running++
			most = max(most, running)
			defer func() { running-- }()
			time.Sleep(8 * time.Second) // six after its time
			report(dvm.Progress{Percent: 99})
			return dvm.Result{Content: "late"}, nil
		}, func(c *dvm.RunnerConfig) { c.Policy.Attempts = 2 })
		begun := time.Now()
		start(t, runner, newParsedRequest(t, begun, withTimeout("2")))
		advance(time.Hour)
		for _, s := range d.texts(begun) {
			if strings.Contains(s, "late") {
				t.Errorf("told: %s", s)
			}
		}
		if s := runner.Stats(); s.Late != 2 || s.Stuck != 0 || most != 1 {
			t.Errorf("%d attempts at once; %+v", most, s)
		}
	})
}

func TestAQueuedJobCanBeCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := new(fakeLink)
		runner := newRunner(t, d, hangingHandler, func(c *dvm.RunnerConfig) { c.Workers, c.Queue, c.Policy.Attempts = 1, 1, 1 })
		begun := time.Now()
		var list []*dvm.Request
		for _, timeout := range []string{"10", "11", "12"} {
			list = append(list, newParsedRequest(t, begun, withTimeout(timeout)))
		}
		start(t, runner, list[0])
		start(t, runner, list[1])
		start(t, runner, list[1]) // a repeated start does nothing
		if err := runner.Start(t.Context(), list[2]); !errors.Is(err, dvm.ErrOverloaded) {
			t.Errorf("the third: %v, want ErrOverloaded", err)
		}
		if got := len(runner.Active()); got != 2 {
			t.Errorf("%d are active, want 2", got)
		}
		synctest.Wait()
		if err := runner.Cancel(t.Context(), list[1].ID, customer.PublicKey()); err != nil {
			t.Error(err)
		}
		testfile.Golden(t, "testdata/cancelled-while-queued.jsonl", lines(d.events()[1:]))
		start(t, runner, list[2]) // there is room again
		advance(time.Hour)
		if s := runner.Stats(); s.Cancelled != 1 || s.Failed != 2 {
			t.Errorf("%+v", s)
		}
		start(t, runner, list[0]) // this job has run already: nothing
		synctest.Wait()
		if s := runner.Stats(); s.Running != 0 {
			t.Errorf("a job is done twice: %+v", s)
		}
	})
}

func TestHooks(t *testing.T) {
	t.Parallel()
	down, never := errors.New("down"), errors.New("never")
	for _, c := range []struct {
		name   string
		change func(*dvm.RunnerConfig, *[]string)
		err    error
		want   string // the end
		heard  string
	}{
		{"OnRetry is called before the wait", func(c *dvm.RunnerConfig, heard *[]string) {
			c.OnRetry = func(_ ctx, r *dvm.Request, e retry.Event) error {
				*heard = append(*heard, fmt.Sprint(r.Kind, " ", e.Attempt, " ", e.Delay))
				return nil
			}
		}, down, "RETRY_EXHAUSTED: down", "5900 1 1s, 5900 2 2s, 5900 3 4s"},
		{"OnRetry fails", func(c *dvm.RunnerConfig, _ *[]string) {
			c.OnRetry = func(ctx, *dvm.Request, retry.Event) error { return errors.New("hook") }
		}, down, "RETRY_EXHAUSTED: down", ""},
		{"OnRetry panics", func(c *dvm.RunnerConfig, _ *[]string) {
			c.OnRetry = func(ctx, *dvm.Request, retry.Event) error { panic("hook") }
		}, down, "RETRY_EXHAUSTED: down", ""},
		{"ShouldRetry says no", func(c *dvm.RunnerConfig, _ *[]string) {
			c.ShouldRetry = func(_ *dvm.Request, err error) bool { return err != never }
		}, never, "PERMANENT: never", ""},
		{"ShouldRetry panics", func(c *dvm.RunnerConfig, _ *[]string) {
			c.ShouldRetry = func(*dvm.Request, error) bool { panic("hook") }
		}, down, "RETRY_EXHAUSTED: down", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := new(fakeLink)
				var heard []string
				runner := newRunner(t, d, fails(9, c.err), func(cfg *dvm.RunnerConfig) { c.change(cfg, &heard) })
				start(t, runner, newParsedRequest(t, time.Now()))
				advance(time.Hour)
				events := d.events()
				if got := events[len(events)-2].Content; got != c.want {
					t.Errorf("the end is %q, want %q", got, c.want)
				}
				if got := strings.Join(heard, ", "); got != c.heard {
					t.Errorf("heard %q, want %q", got, c.heard)
				}
			})
		})
	}
}

func TestAJobThatIsNotTriedSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := new(fakeLink)
		shut, err := breaker.New(breaker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := shut.Force(breaker.ForcedOpen); err != nil {
			t.Fatal(err)
		}
		runner := newRunner(t, d, fails(0, nil), func(c *dvm.RunnerConfig) { c.Options = []retry.Option{retry.WithBreaker(shut)} })
		start(t, runner, newParsedRequest(t, time.Now()))
		advance(time.Minute)
		got := d.texts(time.Now())
		if len(got) != 2 || got[0] != "-1m0s error RETRY_EXHAUSTED: breaker open" {
			t.Errorf("told %v", got)
		}
	})
}

func TestTheBudgetIsThatOfAllJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := new(fakeLink)
		p, err := retry.Parse("fixed(1s) attempts=9 budget=refund(1,0.1,3)")
		if err != nil {
			t.Fatal(err)
		}
		calls := 0
		runner := newRunner(t, d, func(ctx, *dvm.Request, func(dvm.Progress)) (dvm.Result, error) {
			calls++
			return dvm.Result{}, errors.New("down")
		}, func(c *dvm.RunnerConfig) { c.Policy, c.Workers = p, 1 })
		for _, timeout := range []string{"1", "2", "3"} {
			start(t, runner, newParsedRequest(t, time.Now(), withTimeout(timeout)))
		}
		advance(time.Hour)
		if calls != 3+3 {
			t.Errorf("%d calls, want three and three retries", calls)
		}
	})
}

// panickingError is an error whose methods panic.
type panickingError struct{ text bool }

func (e panickingError) Error() string {
	if e.text {
		panic("text")
	}
	return "trap"
}

func (e panickingError) Is(error) bool { panic("is") }

func TestErrorsThatPanicAreFailures(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"RETRY_EXHAUSTED: panic: text":                      panickingError{true},
		"PERMANENT: the error of the handler can't be read": panickingError{false},
		"RETRY_EXHAUSTED: unknown error":                    errors.New(""),
		"RETRY_EXHAUSTED: …":                                errors.New("/etc/passwd"),
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				d := new(fakeLink)
				runner := newRunner(t, d, fails(9, err), func(c *dvm.RunnerConfig) { c.Policy.Attempts = 1 })
				start(t, runner, newParsedRequest(t, time.Now()))
				advance(time.Minute)
				if events := d.events(); len(events) != 3 || events[1].Content != want {
					t.Errorf("told %v", d.texts(time.Now()))
				}
			})
		})
	}
}

func TestAHandlersOwnTimeoutIsNotOurs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := new(fakeLink)
		inner := &retry.TimeoutError{Limit: time.Millisecond, Err: context.DeadlineExceeded}
		runner := newRunner(t, d, fails(9, inner), func(c *dvm.RunnerConfig) { c.Policy.Attempts = 1 })
		start(t, runner, newParsedRequest(t, time.Now()))
		advance(time.Minute)
		if got := d.events()[1].Content; got != "RETRY_EXHAUSTED: attempt timed out after 1ms: context deadline exceeded" {
			t.Errorf("told: %s", got)
		}
	})
}

func TestAHandlerThatStopsWithAnotherErrorHasTimedOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := new(fakeLink)
		runner := newRunner(t, d, func(c ctx, _ *dvm.Request, _ func(dvm.Progress)) (dvm.Result, error) {
			<-c.Done()
			return dvm.Result{}, errors.New("aborted")
		}, func(c *dvm.RunnerConfig) { c.Policy.Attempts = 1 })
		start(t, runner, newParsedRequest(t, time.Now(), withTimeout("7")))
		advance(time.Minute)
		if got := d.events()[1].Content; got != "TIMEOUT: Operation timed out after 7000ms" {
			t.Errorf("told: %s", got)
		}
	})
}

func TestCloseTellsTheCustomers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := new(fakeLink)
		runner := newRunner(t, d, hangingHandler, func(c *dvm.RunnerConfig) { c.Workers = 1 })
		begun := time.Now()
		running, waiting := newParsedRequest(t, begun), newParsedRequest(t, begun, withTimeout("9"))
		start(t, runner, running)
		start(t, runner, waiting)
		synctest.Wait()
		if h, ok := runner.History(running.ID); !ok || len(h.Attempts) != 1 || h.MaxRetries != 3 {
			t.Errorf("the history is %+v, %v", h, ok)
		}
		if err := runner.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "the events", d.texts(begun), []string{
			"0s processing Started", "0s error provider shutting down", "0s error provider shutting down",
		})
		if err := runner.Start(t.Context(), newParsedRequest(t, begun, withTimeout("8"))); !errors.Is(err, dvm.ErrClosed) {
			t.Errorf("a job after the end: %v, want ErrClosed", err)
		}
		if _, ok := runner.History(running.ID); ok {
			t.Error("it is still active")
		}
	})
}

func TestCloseDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		wall := make(chan struct{})
		runner := newRunner(t, new(fakeLink), func(ctx, *dvm.Request, func(dvm.Progress)) (dvm.Result, error) { <-wall; return dvm.Result{}, nil })
		start(t, runner, newParsedRequest(t, time.Now()))
		synctest.Wait()
		c, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := runner.Close(c); err == nil || !strings.Contains(err.Error(), "close: 1 jobs have not stopped") {
			t.Errorf("Close = %v", err)
		}
		close(wall)
	})
}

func TestNewRunnerSaysAllThatIsWrong(t *testing.T) {
	t.Parallel()
	p, err := retry.Parse("fixed(1s) attempts=unlimited attempt-timeout=1s")
	if err != nil {
		t.Fatal(err)
	}
	_, err = dvm.NewRunner(dvm.RunnerConfig{Policy: p, Scope: 7, Grace: -1})
	for _, want := range []string{"attempt-timeout", "attempts: want at most 100", "link: nil", "handler: nil", "key: is missing", "scope: 7", "one is negative"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("NewRunner: %v; want %q in it", err, want)
		}
	}
	if _, err := dvm.NewRunner(dvm.RunnerConfig{Link: new(fakeLink), Key: ours, Handler: hangingHandler, Options: []retry.Option{nil}}); err == nil {
		t.Error("an option that is nil was taken")
	}
}
