package gateway

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// No secret is in any output of the gateway, even if a provider
// repeats it.
func TestSecretsStaySecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		secrets := []string{"sk-main-first", "sk-main-second", "sk-spare-only", "header-value", "gateway-token", "in-the-query", "callers-secret"}
		n := 0
		main := newTestServer(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			n++
			switch n % 5 {
			case 0:
				w.Header().Set("X-Ratelimit-Remaining-Requests", "1")
				fmt.Fprint(w, "ok")
			case 1:
				w.WriteHeader(401)
			case 2:
				fails(500)(0, w, r)
			case 3: // an answer that net/http quotes in its error
				hijack(w, "HTTP/1.1 "+r.Header.Get("X-Api-Key")+" "+r.Header.Get("X-Extra")+"\r\n\r\n")
			case 4:
				sse(w, `data: {"type":"error","error":{"type":"`+r.Header.Get("X-Api-Key")+`","message":"`+r.URL.RawQuery+`"}}`+"\n\n")
			}
		})
		r := newRig(t, []Spec{
			spec(t, "main", Anthropic, main.URL, keys("sk-main-first", "sk-main-second"), fallback("spare"), withoutBreaker, func(s *Spec) {
				s.Headers = []Header{{"X-Extra", NewSecret("header-value")}}
			}),
			spec(t, "spare", Anthropic, unreachableURL, keys("sk-spare-only"), withoutBreaker),
		}, func(o *Options) { o.Token = NewSecret("gateway-token") })
		var answers strings.Builder
		ask := func(method, path string) {
			got := r.ask(method, path, "", "X-Api-Key", "gateway-token", "Authorization", "Bearer callers-secret")
			fmt.Fprintf(&answers, "%v %s %v\n", got.header, got.body, got.err)
		}
		for range 12 {
			ask(http.MethodGet, "/p/main/v1/x?key=in-the-query&q=in-the-query")
			ask(http.MethodGet, "/p/spare/v1/x?key=in-the-query")
		}
		r.settled("main")
		status, err := json.Marshal(r.Status())
		if err != nil {
			t.Fatal(err)
		}
		records, err := json.Marshal(r.Requests(RequestFilter{}))
		if err != nil || len(records) < 1000 {
			t.Fatalf("the records of requests: %s, %v", records, err)
		}
		for what, text := range map[string]string{
			"the records of requests": string(records), "the status": string(status), "the metrics": fmt.Sprintf("%+v", r.Stats()), "logs and events": r.output(), "our answers": answers.String(),
			"the providers": fmt.Sprintf("%+v %v", r.table.Load().providers["main"].spec, r.options),
		} {
			for _, s := range secrets {
				if i := strings.Index(text, s); i >= 0 {
					t.Errorf("%s: %q is in …%s…", what, s, text[max(i-80, 0):min(i+80, len(text))])
				}
			}
		}
		if !strings.Contains(r.output(), "…") {
			t.Error("nothing was taken out: the test does not test")
		}
	})
}
