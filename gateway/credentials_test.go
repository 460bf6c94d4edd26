package gateway

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// callersOwn are credentials of a caller, in every place that may have some.
var callersOwn = []string{
	"Authorization", "Bearer callers-own", "X-Api-Key", "callers-own", "Api-Key", "callers-own", "X-Goog-Api-Key", "callers-own",
	"Proxy-Authorization", "Basic callers-own", "Cookie", "session=callers-own", "X-Odd-Auth", "callers-own",
}

// holds reports whether a text is anywhere in the request.
func (s seen) holds(text string) bool {
	for _, values := range s.header {
		if strings.Contains(strings.Join(values, "\n"), text) {
			return true
		}
	}
	return strings.Contains(s.query+s.path+s.body, text)
}

func TestCredentialsOfCallersGoNowhereElse(t *testing.T) {
	none := func(s *Spec) { s.Keys = nil }
	odd := func(s *Spec) { s.AuthHeader = "X-Odd-Auth" }
	for _, tt := range []struct {
		name     string
		change   []func(*Spec)
		fallback []func(*Spec)
		main     bool   // the provider that was asked for may get them
		key      string // our key for the fallback
	}{
		{"callers bring their own", []func(*Spec){none, odd}, nil, true, "sk-spare-secret-1"},
		{"we have keys", []func(*Spec){odd}, nil, false, "sk-spare-secret-1"},
		{"no provider needs any", []func(*Spec){none, odd, func(s *Spec) { s.Keyless = true }}, []func(*Spec){none, func(s *Spec) { s.Keyless = true }}, false, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				main := newTestServer(t, fails(503))
				spare := newTestServer(t, says("the spare"))
				r := newRig(t, []Spec{
					spec(t, "main", Generic, main.URL+"/base", append(tt.change, fallback("spare"))...),
					spec(t, "spare", Generic, spare.URL+"/other/", append(tt.fallback, func(s *Spec) { s.ForwardQuery = []string{"a", "b", "c"} })...),
				})
				got := r.ask(http.MethodGet, "/p/main/v1/things?a=1&key=callers-own&b=%20x;k%65y=callers-own&c", "", callersOwn...)
				if got.body != "the spare" {
					t.Fatalf("got %d %q", got.code, got.body)
				}
				for _, s := range main.requests() {
					if s.holds("callers-own") != tt.main {
						t.Errorf("the provider that was asked for saw %+v", s)
					}
					if s.path != "/base/v1/things" {
						t.Errorf("it was asked for %s", s.path)
					}
				}
				s := spare.requests()[0]
				if s.holds("callers-own") || s.holds("sk-main") {
					t.Errorf("the fallback saw credentials of others: %+v", s)
				}
				if s.path != "/other/v1/things" || s.query != "a=1&b=%20x;c" {
					t.Errorf("the fallback was asked for %s?%s", s.path, s.query)
				}
				want := ""
				if tt.key != "" {
					want = "Bearer " + tt.key
				}
				if got := s.header.Get("Authorization"); got != want {
					t.Errorf("the fallback saw %q, want %q", got, want)
				}
			})
		})
	}
}

func TestWhereAKeyGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct{ preset, header, value string }{
			{OpenAI, "Authorization", "Bearer sk-it-secret-1"},
			{Anthropic, "X-Api-Key", "sk-it-secret-1"},
			{Gemini, "X-Goog-Api-Key", "sk-it-secret-1"},
			{Generic, "Authorization", "Bearer sk-it-secret-1"},
		} {
			u := newTestServer(t, says("ok"))
			r := newRig(t, []Spec{spec(t, "it", tt.preset, u.URL, func(s *Spec) {
				s.Headers = []Header{{"Anthropic-Version", NewSecret("2023-06-01")}, {"X-Odd", NewSecret("ours")}}
			})})
			r.get("/p/it/x", "X-Odd", "theirs", "Accept", "text/plain")
			s := u.requests()[0]
			if got := s.header.Get(tt.header); got != tt.value {
				t.Errorf("%s: %s is %q, want %q", tt.preset, tt.header, got, tt.value)
			}
			if s.header.Get("X-Odd") != "ours" || s.header.Get("Anthropic-Version") != "2023-06-01" || s.header.Get("Accept") != "text/plain" {
				t.Errorf("%s: headers %v", tt.preset, s.header)
			}
		}
	})
}

func TestTheTokenIsNotPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTestServer(t, says("ok"))
		r := newRig(t, []Spec{spec(t, "it", Generic, u.URL, func(s *Spec) { s.Keys = nil })}, func(o *Options) { o.Token = NewSecret("the-token") })
		for _, h := range []struct{ name, value string }{
			{"Authorization", "Bearer the-token"}, {"Authorization", "bearer the-token"}, {"X-Api-Key", "the-token"},
			{"X-Goog-Api-Key", "the-token"}, {"X-Tideover-Token", "the-token"},
		} {
			headers := []string{h.name, h.value, "Api-Key", "callers-own", "X-Tideover-Priority", "low"}
			if got := r.get("/p/it/x", headers...); got.code != 200 {
				t.Errorf("%s: %d %s", h.name, got.code, got.body)
			}
		}
		for _, s := range u.requests() {
			if s.holds("the-token") || s.header.Get("X-Tideover-Priority") != "" {
				t.Errorf("passed on: %v", s.header)
			}
			if s.header.Get("Api-Key") != "callers-own" {
				t.Errorf("the caller's own key is gone: %v", s.header)
			}
		}
	})
}
