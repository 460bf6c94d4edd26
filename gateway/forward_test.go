package gateway

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

func TestQueryOfAFallback(t *testing.T) {
	t.Parallel()
	f := newForwarding(&Spec{ForwardQuery: []string{"filter[kind]", "trace-id"}})
	for _, tt := range []struct {
		query, kept, unknown string
	}{
		{"", "", ""},
		{"alt=sse&api-version=2024-10-21&pageToken=p", "alt=sse&api-version=2024-10-21&pageToken=p", ""},
		{"limit=1&key=x;token=y&order=%20z", "limit=1&order=%20z", ""},
		{"trace_id=1&filter%5Bkind%5D=2", "trace_id=1&filter%5Bkind%5D=2", ""},
		{"Client-Secret=x&X-Amz-Date=1&X-Amz-Signature=2", "", ""},
		{"limit=1&colour=red", "", "colour=red"},
		{"a-bare-word", "", "a-bare-word"},
		{"limit=1&%zz=2;colour=red", "", "%zz=2"},
		{"&&limit=1&", "limit=1", ""},
	} {
		if kept, unknown := f.queryFor(tt.query); kept != tt.kept || unknown != tt.unknown {
			t.Errorf("queryFor(%q) = %q, %q, want %q, %q", tt.query, kept, unknown, tt.kept, tt.unknown)
		}
	}
}

func TestTheNameOfAnUnknownParameterIsSafe(t *testing.T) {
	t.Parallel()
	redact := func(s string) string { return strings.ReplaceAll(s, "sk-secret", "***") }
	for part, want := range map[string]string{
		"colour=red":                        "colour",
		"a%20b=1":                           "a b",
		"a%0Alevel%3DERROR%1B[31m%00=1":     "a level=ERROR[31m",
		"%E2%80%AErap=1":                    "rap",
		"%FF%zz=1":                          "%FF%zz",
		"sk-secret=1":                       "***",
		"sk-bare":                           "(without a value)",
		"c2VjcmV0==":                        "(without a value)",
		"=red":                              "(without a name)",
		strings.Repeat("\u00e9", 30) + "=1": strings.Repeat("\u00e9", 20) + "…",
	} {
		if got := unknownParameter(part, redact); got != want {
			t.Errorf("unknownParameter(%q) = %q, want %q", part, got, want)
		}
	}
}

// Omitting an unknown parameter could change the request, so the fallback is not used.
func TestAFallbackIsNotAskedWithAnUnknownParameter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main, spare, other := newTestServer(t, fails(503)), newTestServer(t, says("the spare")), newTestServer(t, fails(503))
		specs := func(names ...string) []Spec {
			return []Spec{
				spec(t, "main", Generic, main.URL, fallback("spare", "other"), withoutBreaker),
				spec(t, "other", Generic, other.URL, func(s *Spec) { s.ForwardQuery = []string{"colour"} }),
				spec(t, "spare", Generic, spare.URL, func(s *Spec) { s.ForwardQuery = names }),
			}
		}
		r := newRig(t, specs())
		got := r.get("/p/main/x?colour=red")
		if got.code != 503 || spare.count() != 0 || other.count() == 0 {
			t.Fatalf("got %d %q, and the fallbacks were asked %d and %d times; want only the one that may get the query", got.code, got.body, other.count(), spare.count())
		}
		r.settled("main")
		if text := r.output(); !strings.Contains(text, "forward-query") || !strings.Contains(text, "fallback=spare parameter=colour") || strings.Contains(text, "fallback=other") || strings.Contains(text, "red") {
			t.Errorf("the log must say what to set, and not the values of the query: %s", text)
		}
		info := r.record(got)
		last := info.Steps[len(info.Steps)-1]
		if want := withheldWhy + ": colour"; last.Kind != StepNotUsed || last.Provider != "spare" || last.Why != want || info.Failovers != 1 {
			t.Errorf("the last step is %+v after %d failovers, want that spare was not used: %s", last, info.Failovers, want)
		}
		if err := r.Reload(specs("colour")); err != nil {
			t.Fatal(err)
		}
		if got := r.get("/p/main/x?colour=red"); got.body != "the spare" || spare.requests()[0].query != "colour=red" {
			t.Errorf("after a reload: %d %q", got.code, got.body)
		}
	})
}

// A caller's key in a subprotocol is removed if the gateway has a key of its own.
func TestSubprotocolsWithKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main, spare := newTestServer(t, fails(503)), newTestServer(t, says("the spare"))
		r := newRig(t, []Spec{
			spec(t, "main", OpenAI, main.URL, fallback("spare"), withoutBreaker), spec(t, "spare", OpenAI, spare.URL),
		})
		const sent = "realtime, openai-insecure-api-key.callers-own, openai-beta.realtime-v1, mine"
		r.ask(http.MethodGet, "/p/main/v1/realtime", "", "Sec-Websocket-Protocol", sent)
		for _, tt := range []struct {
			u    *testServer
			want string
		}{{main, "realtime, openai-beta.realtime-v1, mine"}, {spare, "realtime, openai-beta.realtime-v1"}} {
			if got := tt.u.requests()[0].header.Get("Sec-Websocket-Protocol"); got != tt.want {
				t.Errorf("sent %q, want %q", got, tt.want)
			}
		}
	})
}
