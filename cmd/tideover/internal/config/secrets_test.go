package config_test

import (
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/internal/secret"
)

func TestPasswordsOfProxiesAreSecrets(t *testing.T) {
	t.Parallel()
	for value, said := range map[string]string{
		"http://me:hush@proxy.example:3128":   "password hush",
		"me:hush@proxy.example:3128":          "password hush", // as net/http reads it, too
		"http://me:hu%zzsh@proxy.example":     `invalid proxy address "http://me:hu%zzsh@proxy.example"`,
		"socks5://me:hush@proxy.example:1080": "socks5://me:hush@proxy.example:1080",
	} {
		for _, name := range []string{"HTTPS_PROXY", "http_proxy", "ALL_PROXY"} {
			red := new(secret.Redactor)
			if _, err := config.Load(config.Source{Data: []byte("version: 1\n"), Environ: []string{"HOME=/", name + "=" + value}, Redactor: red}); err != nil {
				t.Fatal(err)
			}
			if got := red.String(said); got == said {
				t.Errorf("%s=%s: %q is said", name, value, got)
			}
		}
	}
	red := new(secret.Redactor)
	if _, err := config.Load(config.Source{Data: []byte("version: 1\n"), Environ: []string{"HOME=/", "HTTP_PROXY=http://proxy.example:3128"}, Redactor: red}); err != nil {
		t.Fatal(err)
	}
	if got := red.String("http://proxy.example:3128"); got != "http://proxy.example:3128" {
		t.Errorf("a proxy without a password is hidden: %q", got)
	}
}
