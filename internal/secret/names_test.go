package secret_test

import (
	"slices"
	"testing"

	"github.com/tideover/tideover/internal/secret"
)

// TestNames tests every function about names, with names for which it returns true and
// names for which it returns false.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		is      func(string) bool
		yes, no []string
	}{
		{
			"IsHeader", secret.IsHeader,
			[]string{
				"Authorization", "Proxy-Authorization", "Authentication", "X-Auth", "X-Api-Key", "Apikey", "Api_key", "X-Auth-Key",
				"Ocp-Apim-Subscription-Key", "X-Functions-Key", "X-Access-Key", "X-Private-Key", "X-Auth-Token", "X-Authtoken", "X_auth_token",
				"Cookie", "X-Session-Id", "X-Client-Secret", "X-Passwd", "X-Password", "X-Amz-Credential", "X-Jwt-Assertion", "AUTHORIZATION",
			},
			[]string{
				"", "Accept", "Idempotency-Key", "Max-Tokens", "X-Tokenizer", "Page-Token", "X-Continuation-Token", "Idempotency-Token",
				"Sec-Websocket-Key", "X-Auth-Mode", "Signature", "Code", "Key",
			},
		},
		{
			"IsKeyQuery", secret.IsKeyQuery,
			[]string{"key", "Key", "api_key", "api-key", "apikey", "access_token", "auth_token", "subscription-key"},
			[]string{"", "page_token", "token", "accesstoken", "access-token", "subscriptionkey", "secret"},
		},
		{
			"IsQuery", secret.IsQuery,
			[]string{"accesskeyid", "apikey", "code", "key", "password", "sig", "token", "username", "xamzsignature", "xgoogcredential", "xsrftoken"},
			[]string{"", "api_key", "Key", "model", "pagetoken", "q", "xauth"},
		},
		{
			"IsSetting", secret.IsSetting,
			[]string{
				"TOKEN", "API_TOKEN", "x-api-key", "dbPassword", "apikey", "Authorization", "set-cookie", "AWS_SECRET_ACCESS_KEY", "signing.key",
				"credential", "credentials", "passphrase", "pwd", "passwd", "secret", "pi_key",
			},
			[]string{"", "-", "key", "max_tokens", "token_count", "sort-key", "primary_key", "session", "signature"},
		},
		{
			"MaybeName", secret.MaybeName,
			[]string{"Authorization", "X-Auth-Mode", "Sec-Websocket-Key", "max_tokens", "Cookie", "session", "sig", "SIG", "X-Signature", "credentials", "passwd"},
			[]string{"", "Idempotency-Key", "signal", "model", "q", "design"},
		},
	} {
		for _, name := range slices.Concat(c.yes, c.no) {
			if got, want := c.is(name), slices.Contains(c.yes, name); got != want {
				t.Errorf("%s(%q) = %v, want %v", c.name, name, got, want)
			}
		}
	}
}

func TestIsHeaderAllocatesNothing(t *testing.T) {
	names := []string{"Accept", "X-Stainless-Helper-Method", "Anthropic-Dangerous-Direct-Browser-Access", "X-Ratelimit-Limit-Tokens"}
	if n := testing.AllocsPerRun(100, func() {
		for _, name := range names {
			secret.IsHeader(name)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
