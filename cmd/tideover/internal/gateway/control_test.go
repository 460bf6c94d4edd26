package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestControlRefusesWhatItDoesNotKnow(t *testing.T) {
	r := newRig(t, []Spec{spec(t, "it", Anthropic, "http://localhost:1")})
	if err := r.Control("that", Open); !errors.Is(err, ErrUnknownProvider) || !strings.Contains(err.Error(), "there are it") {
		t.Errorf("Control(that) = %v", err)
	}
	if err := r.Control("it", "paint"); !errors.Is(err, ErrUnknownAction) || !strings.Contains(err.Error(), "open, close, drain, reset") {
		t.Errorf("Control(paint) = %v", err)
	}
}

func TestOpenedByHand(t *testing.T) {
	u, spare := newUpstream(t, says("main")), newUpstream(t, says("the spare"))
	r := newRig(t, []Spec{
		spec(t, "main", Generic, u.URL, fallback("spare")), spec(t, "spare", Generic, spare.URL), spec(t, "alone", Generic, u.URL),
	})
	for _, name := range []string{"main", "alone"} {
		if err := r.Control(name, Open); err != nil {
			t.Fatal(err)
		}
		if st := r.status(name); st.State != Opened || st.Breaker != "forced-open" || st.Since == nil {
			t.Errorf("%s: %+v", name, st)
		}
	}
	if got := r.get("/p/main/x"); got.body != "the spare" {
		t.Errorf("got %d %q, want the spare", got.code, got.body)
	}
	if st := r.status("main"); st.Failovers[0].Why != "opened by hand" {
		t.Errorf("failed over because of %q", st.Failovers[0].Why)
	}
	if got := r.get("/p/alone/x"); got.code != 503 || got.errorCode(t) != codeOpened {
		t.Errorf("got %d %q", got.code, got.body)
	}
	for _, name := range []string{"main", "alone"} {
		if err := r.Control(name, Reset); err != nil {
			t.Fatal(err)
		}
		if got := r.get("/p/" + name + "/x"); got.body != "main" {
			t.Errorf("%s after reset: %d %q", name, got.code, got.body)
		}
		if st := r.status(name); st.State != Up || st.Breaker != "closed" || st.Since != nil {
			t.Errorf("%s after reset: %+v", name, st)
		}
	}
}

func TestClosedByHandCountsAsUp(t *testing.T) {
	u := newUpstream(t, fails(503))
	r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=1"), func(s *Spec) { s.OpenFor = 40 * time.Second })})
	takeDown(r, "it")
	waits := make(chan reply)
	go func() { waits <- r.get("/p/it/x") }()
	eventually(t, "it waits", func() bool { return r.status("it").Waiting == 1 })
	if err := r.Control("it", Close); err != nil {
		t.Fatal(err)
	}
	if got := <-waits; got.body != `{"error":{"message":"it is 503"}}` {
		t.Errorf("who waited got %d %q, want to be let through", got.code, got.body)
	}
	for range 10 {
		r.get("/p/it/x")
	}
	if n := u.count(); n != 11 {
		t.Errorf("%d requests were sent, want all 11", n)
	}
	st := r.status("it")
	if st.State != Up || !st.Held || st.Breaker != "forced-closed" || len(st.Outages) != 1 {
		t.Errorf("%+v", st)
	}
}

func TestResetForgetsWhatWasToldOfKeys(t *testing.T) {
	u := newUpstream(t, shaky(1, 401))
	r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL)})
	r.get("/p/it/x")
	if got := r.get("/p/it/x"); got.code != 503 {
		t.Fatalf("got %d, want that the key is left alone", got.code)
	}
	if err := r.Control("it", Reset); err != nil {
		t.Fatal(err)
	}
	if got := r.get("/p/it/x"); got.body != "done" {
		t.Errorf("got %d %q", got.code, got.body)
	}
}

func TestDrainAProvider(t *testing.T) {
	hold := make(chan struct{})
	u := newUpstream(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n == 1 {
			<-hold
			fails(503)(n, w, r)
			return
		}
		fmt.Fprint(w, "main")
	})
	spare := newUpstream(t, says("the spare"))
	r := newRig(t, []Spec{
		spec(t, "main", Generic, u.URL, fallback("spare")), spec(t, "spare", Generic, spare.URL), spec(t, "alone", Generic, u.URL),
	})
	got := make(chan reply)
	go func() { got <- r.get("/p/main/x") }()
	eventually(t, "it is under way", func() bool { return u.count() == 1 })
	for _, name := range []string{"main", "alone"} {
		if err := r.Control(name, Drain); err != nil {
			t.Fatal(err)
		}
	}
	if a := r.get("/p/main/x"); a.body != "the spare" {
		t.Errorf("a new request got %d %q, want the spare", a.code, a.body)
	}
	if a := r.get("/p/alone/x"); a.code != 503 || a.errorCode(t) != codeDraining {
		t.Errorf("a new request got %d %q", a.code, a.body)
	}
	close(hold)
	if a := <-got; a.body != "main" {
		t.Errorf("what was under way got %d %q, want that it is finished there", a.code, a.body)
	}
	if st := r.status("main"); st.State != Draining || st.InFlight != 0 {
		t.Errorf("%+v", st)
	}
}

// Who waits for a provider is told when somebody opens it.
func TestWaitersAreTurnedAwayByHand(t *testing.T) {
	u := newUpstream(t, fails(503))
	r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, withPolicy(t, "fixed(1ms) attempts=2"), func(s *Spec) { s.OpenFor = 40 * time.Second })})
	takeDown(r, "it")
	got := make(chan reply)
	go func() { got <- r.get("/p/it/x") }()
	eventually(t, "it waits", func() bool { return r.status("it").Waiting == 1 })
	if err := r.Control("it", Open); err != nil {
		t.Fatal(err)
	}
	if a := <-got; a.code != 503 || a.errorCode(t) != codeOpened {
		t.Errorf("got %d %q", a.code, a.body)
	}
}
