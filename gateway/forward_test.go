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
		query, kept string
		ok          bool
	}{
		{"", "", true},
		{"alt=sse&api-version=2024-10-21&pageToken=p", "alt=sse&api-version=2024-10-21&pageToken=p", true},
		{"limit=1&key=x;token=y&order=%20z", "limit=1&order=%20z", true},
		{"trace_id=1&filter%5Bkind%5D=2", "trace_id=1&filter%5Bkind%5D=2", true},
		{"Client-Secret=x&X-Amz-Date=1&X-Amz-Signature=2", "", true},
		{"limit=1&colour=red", "", false},
		{"a-bare-word", "", false},
		{"limit=1&%zz=2", "", false},
		{"&&limit=1&", "limit=1", true},
	} {
		if kept, ok := f.queryFor(tt.query); kept != tt.kept || ok != tt.ok {
			t.Errorf("queryFor(%q) = %q, %v, want %q, %v", tt.query, kept, ok, tt.kept, tt.ok)
		}
	}
}

// Omitting an unknown parameter could change the request, so the fallback is not used.
func TestAFallbackIsNotAskedWithAnUnknownParameter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		main, spare := newTestServer(t, fails(503)), newTestServer(t, says("the spare"))
		specs := func(names ...string) []Spec {
			return []Spec{
				spec(t, "main", Generic, main.URL, fallback("spare"), withoutBreaker),
				spec(t, "spare", Generic, spare.URL, func(s *Spec) { s.ForwardQuery = names }),
			}
		}
		r := newRig(t, specs())
		if got := r.get("/p/main/x?colour=red"); got.code != 503 || spare.count() != 0 {
			t.Fatalf("got %d %q, and the fallback was asked %d times; want the provider's own answer", got.code, got.body, spare.count())
		}
		r.settled("main")
		if text := r.output(); !strings.Contains(text, "forward-query") || strings.Contains(text, "colour") {
			t.Errorf("the log must say what to set, and not what was in the query: %s", text)
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
