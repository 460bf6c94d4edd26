package gateway

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// The duration of an outage ends with the last failure if no request came for long after
// it: the provider may have recovered in that time.
func TestHowLongAnOutageLasted(t *testing.T) {
	const step = 2 * time.Second
	type look struct {
		at  int // seconds after the beginning
		how string
	}
	for _, tt := range []struct {
		name    string
		looks   []look
		back    int
		seconds float64
		atLeast bool
		probes  int
	}{
		{"a probe after one step", []look{{2, "start"}}, 3, 3, false, 1},
		{"a probe that takes long", []look{{2, "start"}}, 60, 60, false, 1},
		{"a probe fails, the next does not", []look{{2, "start"}, {3, "failed"}, {5, "start"}}, 6, 6, false, 2},
		{"no request for an hour", []look{{3600, "start"}}, 3601, 0, true, 1},
		{"a probe fails, and no request for an hour", []look{{2, "start"}, {3, "failed"}, {3600, "start"}}, 3601, 3, true, 2},
		{"no request for an hour, and then it still fails", []look{{3600, "start"}, {3601, "failed"}, {3603, "start"}}, 3604, 3604, false, 2},
		{"a probe is given up", []look{{2, "start"}, {3, "canceled"}, {5, "start"}}, 6, 6, false, 2},
		{"a probe is given up, and no request for an hour", []look{{2, "start"}, {3, "canceled"}, {3600, "start"}}, 3601, 0, true, 2},
		{"a probe hangs until the next is due", []look{{2, "start"}, {34, "start"}}, 35, 35, false, 2},
		{"an operator closes it in time", nil, 5, 5, false, 0},
		{"an operator closes it after an hour", nil, 3600, 0, true, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h history
			began := time.Now()
			at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
			h.began(began, "test", 0, step)
			for _, l := range tt.looks {
				switch l.how {
				case "start":
					h.probed(at(l.at))
				default:
					h.reported(at(l.at), l.how == "failed", step)
				}
			}
			o, was := h.ended(at(tt.back))
			if !was || o.Seconds != tt.seconds || o.AtLeast != tt.atLeast || o.Probes != tt.probes || !o.Ended.Equal(at(tt.back)) {
				t.Errorf("got %+v, want %vs, at least: %v, %d probes", o, tt.seconds, tt.atLeast, tt.probes)
			}
		})
	}
}

// The first outage has no prediction. For the second, the status during the outage and
// the record after it have the same one.
func TestPredictions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, says("done"))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		for i := range 2 {
			learned := i > 0
			takeDown(r, "it")
			st := r.status("it")
			if st.Recovery == nil {
				t.Fatalf("outage %d: %+v", i+1, st)
			}
			rec := *st.Recovery
			if (rec.Expected != nil) != learned || (rec.Predicted > 0) != learned || (rec.Outages > 0) != learned {
				t.Errorf("outage %d: %+v, want a prediction: %v", i+1, rec, learned)
			}
			if got := r.get("/p/it/x"); got.body != "done" {
				t.Fatalf("got %d %q", got.code, got.body)
			}
			eventually(t, "it is up", func() bool { return r.status("it").State == Up })
			o := r.status("it").Outages[0]
			if o.Predicted != rec.Predicted || o.AtLeast || o.Seconds <= 0 {
				t.Errorf("outage %d: %+v, want what was predicted while it was down: %v", i+1, o, rec.Predicted)
			}
		}
	})
}

// The Retry-After for a caller that can't wait is the time of the next probe, not the
// predicted end of the outage.
func TestRetryAfterIsNoGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newSick(t, 503)
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL)})
		takeDown(r, "it")
		next := seconds(time.Until(*r.status("it").Recovery.Next))
		got := r.get("/p/it/x", "X-Request-Timeout-Ms", "100")
		if after := got.header.Get("Retry-After"); got.errorCode(t) != codeDown || after != fmt.Sprint(next) {
			t.Errorf("Retry-After %q, want that of the next probe, %d", after, next)
		}
	})
}
