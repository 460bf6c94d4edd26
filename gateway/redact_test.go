package gateway

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/tideover/tideover/limit"
)

func TestErrorsAreRedacted(t *testing.T) {
	t.Parallel()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://up.example/v1/x?key=in-the%2Fquery&q=harmless", nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{"Authorization": "Bearer callers-token", "X-Api-Key": "callers-key", "Cookie": "session=callers-cookie", "X-Key": "callers-other-key", "Accept": "harmless"} {
		req.Header.Set(name, value)
	}
	for _, tt := range []struct{ name, said, want string }{
		{"nothing of it", "EOF", "EOF"},
		{"a token", "broken: callers-token", "broken: ***"},
		{"with its scheme", `malformed: "Bearer callers-token"`, `malformed: "…"`},
		{"a key", "broken: callers-key harmless", "broken: *** harmless"},
		{"a header of which nothing is known", "broken: callers-other-key", "broken: ***"},
		{"a cookie", "broken: callers-cookie", "broken: ***"},
		{"the query", "broken: in-the%2Fquery in-the/query", "broken: *** ***"},
		{"another caller's", `malformed "another"`, `malformed "…"`},
	} {
		err := redactError(errors.Join(errors.New(tt.said), io.EOF), req)
		if got := err.Error(); got != tt.want+"\nEOF" || !errors.Is(err, io.EOF) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestRoutesHaveNoSecrets(t *testing.T) {
	t.Parallel()
	b := &budgets{spec: limit.ProviderBudget(), redact: func(s string) string {
		if s == "POST /bot-hush/send" || s == "POST /bot-pssst/send" {
			return "POST /bot-***/send"
		}
		return s
	}}
	if b.of("POST /bot-hush/send") != b.of("POST /bot-pssst/send") || b.of("POST /send") == b.of("POST /bot-hush/send") {
		t.Error("routes that differ only in a secret are different, or all routes are the same")
	}
	if list := b.list(); len(list) != 2 || list[0].Route != "POST /bot-***/send" {
		t.Errorf("routes %+v", list)
	}
}

func TestWhatIsACredential(t *testing.T) {
	for _, tt := range []struct {
		want  bool
		names []string
	}{
		{true, []string{
			"Authorization", "Proxy-Authorization", "X-Authorization", "X-Forwarded-Authorization", "Authentication", "X-Auth",
			"X-Api-Key", "Api-Key", "Apikey", "X-Goog-Api-Key", "X-Rapidapi-Key", "Dd-Api-Key", "Api_key", "X-Auth-Key", "X-Access-Key",
			"Ocp-Apim-Subscription-Key", "X-Functions-Key", "X-Private-Key",
			"X-Auth-Token", "Private-Token", "X-Access-Token", "X-Amz-Security-Token", "X-Goog-Iam-Authorization-Token", "X-Csrf-Token",
			"X-Xsrf-Token", "X-Session-Token", "X-Vault-Token", "Token", "X-Token", "X-Authtoken", "X-Token-Id", "X_auth_token",
			"Cookie", "Cookie2", "X-Session-Id", "Mcp-Session-Id", "X-Client-Secret", "X-Password", "X-Amz-Credential", "X-Jwt-Assertion",
			"x-auth-token", "AUTHORIZATION", "x-auth-key",
		}},
		{false, []string{
			"Accept", "Accept-Encoding", "Content-Type", "Content-Length", "User-Agent", "Idempotency-Key", "X-Idempotency-Key",
			"Anthropic-Version", "Anthropic-Beta", "Openai-Organization", "Openai-Project", "X-Goog-Api-Client", "X-Goog-User-Project",
			"X-Ratelimit-Limit-Tokens", "Anthropic-Ratelimit-Tokens-Remaining", "Max-Tokens", "X-Max-Output-Tokens", "X-Tokenizer",
			"Page-Token", "X-Next-Page-Token", "Continuation-Token", "Idempotency-Token", "Sec-Websocket-Key", "Sec-Websocket-Version",
			"X-Stainless-Lang", "X-Request-Id", "Traceparent", "X-Tideover-Attempt", "Range", "If-None-Match", "Origin", "",
		}},
	} {
		for _, name := range tt.names {
			if got := isCredential(name); got != tt.want {
				t.Errorf("isCredential(%q) = %v, want %v", name, got, tt.want)
			}
		}
	}
}

func TestTellingCredentialsCostsNothing(t *testing.T) {
	names := []string{"Accept", "X-Stainless-Helper-Method", "Anthropic-Dangerous-Direct-Browser-Access", "X-Ratelimit-Limit-Tokens"}
	if n := testing.AllocsPerRun(100, func() {
		for _, name := range names {
			isCredential(name)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

// The gateway sends a header that looks like a credential only to the provider that the
// caller asked for, and only if the gateway has no key of its own. It sends a fallback
// only the headers that are known to be no credentials.
func TestWhereHeadersGo(t *testing.T) {
	none := func(s *Spec) { s.Keys = nil }
	for _, tt := range []struct {
		name          string
		change        func(*Spec)
		asked, spared bool // the provider that was asked for gets credentials, and its session
	}{
		{"callers bring their own", none, true, true},
		{"we have keys", func(*Spec) {}, false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				main, spare := newTestServer(t, fails(503)), newTestServer(t, says("the spare"))
				r := newRig(t, []Spec{
					spec(t, "main", Generic, main.URL, fallback("spare"), tt.change), spec(t, "spare", Generic, spare.URL, func(s *Spec) { s.ForwardHeaders = []string{"x-max-tokens"} }),
				})
				secrets := []string{"X-Auth-Token", "Private-Token", "X-Access-Token", "X-Amz-Security-Token", "X-Client-Secret", "X-Authorization"}
				plain := []string{"X-Max-Tokens", "Idempotency-Key", "X-Request-Id", "Anthropic-Beta"}
				var headers []string
				for _, name := range append(append([]string{"Mcp-Session-Id"}, secrets...), plain...) {
					headers = append(headers, name, "it")
				}
				got := r.ask(http.MethodGet, "/p/main/x?q=1&access_token=it&page_token=2&api_key=it", "", headers...)
				if got.body != "the spare" {
					t.Fatalf("got %d %q", got.code, got.body)
				}
				check := func(who string, s seen, secret, session bool) {
					for _, name := range secrets {
						if (s.header.Get(name) != "") != secret {
							t.Errorf("%s: %s is there: %v, want %v", who, name, !secret, secret)
						}
					}
					for _, name := range plain {
						if s.header.Get(name) != "it" {
							t.Errorf("%s: %s is gone", who, name)
						}
					}
					if (s.header.Get("Mcp-Session-Id") != "") != session {
						t.Errorf("%s: the session is there: %v, want %v", who, !session, session)
					}
					want := "q=1&page_token=2"
					if secret {
						want = "q=1&access_token=it&page_token=2&api_key=it"
					}
					if s.query != want {
						t.Errorf("%s: asked for ?%s, want ?%s", who, s.query, want)
					}
				}
				check("main", main.requests()[0], tt.asked, tt.spared)
				check("spare", spare.requests()[0], false, false)
			})
		})
	}
}
