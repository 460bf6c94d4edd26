package gateway

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
)

func TestInsideOneAttemptIsMade(t *testing.T) {
	u := newUpstream(t, func(n int, w http.ResponseWriter, r *http.Request) {
		switch n {
		case 1:
			fails(503)(n, w, r)
		case 2:
			fails(429, "Retry-After", "300")(n, w, r)
		default:
			fmt.Fprint(w, "ok")
		}
	})
	r := newRig(t, []Spec{spec(t, "it", Anthropic, u.URL+"/base")})
	c := &http.Client{Transport: r.RoundTripper("it")}
	for i, want := range []int{503, 429} {
		resp, err := c.Post(u.URL+"/base/v1/x", "text/plain", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want || u.count() != i+1 {
			t.Errorf("got %d after %d requests, want %d after %d", resp.StatusCode, u.count(), want, i+1)
		}
	}
	if s := u.requests()[0]; s.path != "/base/v1/x" || s.header.Get("X-Api-Key") != "sk-it-secret-1" || s.body != "body" {
		t.Errorf("sent %+v", s)
	}
	// Its keys were told to wait, and so is whoever comes next.
	_, err := c.Get(u.URL + "/base/v1/x")
	o := retry.OutcomeOf(err)
	if err == nil || o.Class != retry.ClassThrottled || o.After < 290*time.Second || u.count() != 2 {
		t.Errorf("got %v, %+v, want to be told to come in 300s", err, o)
	}
	if err := r.Control("it", Reset); err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(&http.Request{Method: http.MethodGet, URL: mustURL(t, "http://x")})
	if err == nil {
		resp.Body.Close()
		t.Error("a URL of another host is sent")
	}
	req, _ := http.NewRequest(http.MethodGet, "/v1/y?z=1", nil)
	resp, err = r.RoundTripper("it").RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(resp.Body)
	resp.Body.Close()
	if s := u.requests()[2]; string(text) != "ok" || s.path != "/base/v1/y" || s.query != "z=1" {
		t.Errorf("got %q from %s?%s", text, s.path, s.query)
	}
	st := r.settled("it")
	if st.Totals.Requests != 4 || st.Totals.Retries != 0 || st.Totals.Succeeded != 1 || st.Totals.Failed != 3 || st.InFlight != 0 {
		t.Errorf("totals: %+v", st.Totals)
	}
}

func TestInsideErrorsAreThoseOfTheAttempt(t *testing.T) {
	r := newRig(t, []Spec{spec(t, "it", Anthropic, nobody)})
	req, _ := http.NewRequest(http.MethodPost, "/x", strings.NewReader("body"))
	_, err := r.RoundTripper("it").RoundTrip(req)
	if o := retry.OutcomeOf(err); err == nil || o.Class != retry.ClassTransient || o.Final {
		t.Errorf("got %v, %+v, want a failure that may pass", err, o)
	}
	if _, ok := errors.AsType[*retry.Error](err); ok {
		t.Errorf("%v: the one attempt is all there was", err)
	}
	_, err = r.RoundTripper("that").RoundTrip(req)
	if o := retry.OutcomeOf(err); !errors.Is(err, ErrUnknownProvider) || o.Class != retry.ClassPermanent {
		t.Errorf("got %v, %+v", err, o)
	}
	for _, address := range []string{"/a/../b", "ftp://x/y"} {
		req, _ := http.NewRequest(http.MethodGet, address, nil)
		if _, err := r.RoundTripper("it").RoundTrip(req); retry.OutcomeOf(err).Class != retry.ClassPermanent {
			t.Errorf("%s: %v, want a failure that stays", address, err)
		}
	}
}

// A failover needs no second attempt when it is known that the first would fail.
func TestInsideFallbacksTakeOver(t *testing.T) {
	u, spare := newUpstream(t, says("main")), newUpstream(t, says("the spare"))
	r := newRig(t, []Spec{spec(t, "main", Generic, u.URL, fallback("spare")), spec(t, "spare", Generic, spare.URL)})
	if err := r.Control("main", Open); err != nil {
		t.Fatal(err)
	}
	req, _ := http.NewRequest(http.MethodGet, "/x", nil)
	resp, err := r.RoundTripper("main").RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, _ := io.ReadAll(resp.Body); string(text) != "the spare" {
		t.Errorf("got %q", text)
	}
}
