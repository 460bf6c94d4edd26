package gateway

import (
	"errors"
	"io"
	"net/http"
	"testing"

	"github.com/tideover/tideover/limit"
)

func TestErrorsAreDiscreet(t *testing.T) {
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
		err := discreet(errors.Join(errors.New(tt.said), io.EOF), req)
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
		t.Error("routes are told apart by a secret, or not at all")
	}
	if list := b.list(); len(list) != 2 || list[0].Route != "POST /bot-***/send" {
		t.Errorf("routes %+v", list)
	}
}
