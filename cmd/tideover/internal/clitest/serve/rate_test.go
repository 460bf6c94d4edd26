//go:build unix

package serve_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// The queue of rate.requests holds at most rate.queue requests. If it is full, a request with a
// higher priority replaces the waiting one with the lowest.
func TestTheQueueOfARateKeepsTheMostUrgent(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	s := clitest.GatewayFile(t, fmt.Sprintf(`version: 1
providers:
  up: {base-url: %s, auth: "${env:KEY}", policy: fixed(1ms) attempts=1 total-timeout=1h, rate: {requests: 1/10m, queue: 1}}
`, clitest.Upstream(t, &asked, 200)), "KEY=hush-hush-key")
	ctx, cancel := context.WithCancel(t.Context())
	ask := func(class string) <-chan string {
		answer := make(chan string, 1)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Address()+"p/up/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Tideover-Priority", class)
		go func() {
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				answer <- fmt.Sprint(errors.Is(err, context.Canceled))
				return
			}
			defer resp.Body.Close()
			text, _ := io.ReadAll(resp.Body)
			answer <- resp.Status + " " + string(text)
		}()
		return answer
	}
	waits := func(class string) {
		t.Helper()
		testwait.Until(t, class+" waits", func() bool { return s.Provider("up").ByClass[class] == 1 })
	}
	if got := <-ask("normal"); !strings.HasPrefix(got, "200") {
		t.Fatalf("the first: %s", got)
	}
	turnedAway := func(who string, answer <-chan string) {
		t.Helper()
		testwait.Until(t, who+" is answered, or waits beside another", func() bool { return len(answer) > 0 || s.Provider("up").Waiting > 1 })
		if len(answer) == 0 {
			t.Fatalf("%s waits, and the queue has room for one", who)
		}
		if got := <-answer; !strings.Contains(got, `"queue_full"`) {
			t.Errorf("%s: %s, want that there is no room", who, got)
		}
	}
	low := ask("low")
	waits("low")
	turnedAway("one more", ask("low"))
	urgent := ask("highest")
	turnedAway("the least urgent", low)
	waits("highest")
	cancel()
	if got := <-urgent; got != "true" {
		t.Errorf("the most urgent: %s, want that it waited until its caller left", got)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the provider was asked %d times", n)
	}
}
