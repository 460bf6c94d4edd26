//go:build unix

package nip90_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/nostr/nostrtest"
	"github.com/tideover/tideover/retry"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// provide runs a real provider with the key of j, on the relay of j and on second, until the test
// ends.
func provide(t *testing.T, j *fakeProvider, second *nostrtest.Relay, handler dvm.Handler) {
	t.Helper()
	policy, err := retry.Parse("fixed(10ms) attempts=3")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- dvm.Serve(ctx, dvm.ServeConfig{
			Relays: []string{j.relay.URL(), second.URL()}, Key: j.provider, Handler: handler, Runner: dvm.RunnerConfig{Policy: policy},
		})
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestARequestToARealProvider(t *testing.T) {
	t.Parallel()
	j, second := newFakeProvider(t), nostrtest.New(t)
	var attempts atomic.Int32
	started, stopped := make(chan struct{}, 1), make(chan struct{}, 1)
	provide(t, j, second, func(ctx context.Context, r *dvm.Request, _ func(dvm.Progress)) (dvm.Result, error) {
		switch {
		case r.Task == "hang":
			started <- struct{}{}
			<-ctx.Done()
			stopped <- struct{}{}
			return dvm.Result{}, ctx.Err()
		case r.Task == "slow":
			<-ctx.Done()
			return dvm.Result{}, ctx.Err()
		case attempts.Add(1) < 3:
			return dvm.Result{}, errors.New("not yet")
		}
		return dvm.Result{Content: strings.ToUpper(r.Task)}, nil
	})

	got := clitest.Finish(t, j.command("--relay", second.URL(), "shout"))
	clitest.WantCode(t, got, 0)
	if got.Out != "SHOUT" || strings.Count(got.Stderr, "Retry 2/2 after error: not yet") != 1 {
		t.Errorf("stdout %q, stderr %q", got.Out, got.Stderr)
	}

	got = clitest.Finish(t, j.command("--relay", second.URL(), "--timeout", "1s", "slow"))
	clitest.WantCode(t, got, 124)
	clitest.WantIn(t, "stderr", got.Stderr, "TIMEOUT: Operation timed out after 1000ms (after 2 retries)\n")

	cmd, out, stderr := j.start("--relay", second.URL(), "hang")
	<-started
	_ = cmd.Process.Signal(syscall.SIGINT)
	<-stopped
	got = ended(cmd, out, stderr)
	clitest.WantCode(t, got, 130)
	clitest.WantIn(t, "stderr", got.Stderr, "error: cancelled\n")
	for _, relay := range []*nostrtest.Relay{j.relay, second} {
		relay.Await(t, func(stored []*nostr.Event) bool {
			for _, e := range stored {
				if e.Kind == dvm.KindFeedback && e.Content == "cancelled" {
					return true
				}
			}
			return false
		})
	}
}
