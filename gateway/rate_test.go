package gateway

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/limit"
)

// Requests that wait for rate.requests are served by priority. At most rate.queue of them
// wait; those with the lowest priority are rejected.
func TestRateHonoursPriorityAndQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, says("done"))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=2 total-timeout=1h"), func(s *Spec) {
			s.Rate, s.Queue = limit.Frequency{Events: 1, Per: time.Minute}, 3
		})})
		answers := make(chan string)
		ask := func(class string) {
			go func() {
				got := r.ask(http.MethodGet, "/p/it/"+class, "", "X-Tideover-Priority", class)
				text := class + " " + got.body
				if got.code != 200 {
					text = class + " " + got.errorCode(t)
				}
				answers <- text
			}()
			synctest.Wait()
			time.Sleep(time.Millisecond)
		}
		ask("normal")
		if got := <-answers; got != "normal done" {
			t.Fatalf("the first: %q", got)
		}
		for _, class := range []string{"lowest", "low", "normal"} {
			ask(class)
		}
		if st := r.status("it"); st.Waiting != 3 || st.ByClass["lowest"] != 1 || st.ByClass["low"] != 1 {
			t.Errorf("%d wait, %v", st.Waiting, st.ByClass)
		}
		ask("lowest") // the queue is full
		if got := <-answers; got != "lowest "+codeQueue {
			t.Errorf("the fourth that waits: %q, want %s", got, codeQueue)
		}
		ask("highest") // takes the place of the request with the lowest priority
		if got := <-answers; got != "lowest "+codeQueue {
			t.Errorf("the least urgent: %q, want that it makes room", got)
		}
		for range 3 {
			<-answers
		}
		var order []string
		for _, s := range u.requests() {
			order = append(order, strings.TrimPrefix(s.path, "/"))
		}
		if want := []string{"normal", "highest", "normal", "low"}; !slices.Equal(order, want) {
			t.Errorf("sent in the order %v, want %v", order, want)
		}
	})
}
