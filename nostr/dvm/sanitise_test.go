package dvm_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/nostr/dvm"
)

func TestSanitise(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"plain words stay", "connection refused (attempt 2 of 3)", "connection refused (attempt 2 of 3)"},
		{"lines become one", "a\r\n\tb\n\n c\u2028d", "a b c d"},
		{"colours go", "\x1b[1;31mred\x1b[0m and \u009b31mmore", "red and more"},
		{"a window title goes", "x\x1b]0;owned\x07y\x1b]8;;http://e\x1b\\z", "xyz"},
		{"control characters go", "a\x00b\x07c\u202ed\ufeffe", "abcde"},
		{"a link keeps its host", "Get \"https://user:pw@api.example.com:8443/v1/x?token=abc#f\": EOF", "Get \"https://api.example.com:8443\": EOF"},
		{"a password with a quote", `get https://me:p"w@example.com/x: no`, "get https://example.com no"},
		{"links in quotes", `["https://a.example/x?y","https://me:pw@b.example/z"]`, `["https://a.example","https://b.example"]`},
		{"an at sign in a path", "https://example.com/@me", "https://example.com"},
		{"a link without a host", "file:///home/me/.ssh/id", "file://…"},
		{"a relay", "dial wss://relay.example/inbox: refused", "dial wss://relay.example refused"},
		{"a path", "open /home/me/data.txt: no such file", "open …: no such file"},
		{"a path in quotes", `exec "/usr/bin/env": not found`, `exec "…": not found`},
		{"a path after an equals sign", "dir=/var/lib/x", "dir=…"},
		{"a path at home", "read ~/notes", "read …"},
		{"a path of another system", `C:\Users\me\x.txt is locked, \\server\share too`, "… is locked, … too"},
		{"fractions are no paths", "1/3 of a/b", "1/3 of a/b"},
		{"a hash", "no object d41d8cd98f00b204e9800998ecf8427e here", "no object … here"},
		{"base64", "got c2VjcmV0IHNlY3JldCBzZWNyZXQ= back", "got … back"},
		{"a secret key", "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5", "…"},
		{"long words stay", "internationalization-of-everything", "internationalization-of-everything"},
		{"a password", "login: user=bob password=hunter2 failed", "login: user=bob password=… failed"},
		{"a key in JSON", `{"api_key": "abc def", "n": 1}`, `{"api_key": …, "n": 1}`},
		{"a header", "Authorization: Bearer abc.def", "Authorization: …"},
		{"a bearer", "sent bearer abc123", "sent bearer …"},
		{"not UTF-8", "a\xffb", "ab"},
		{"empty", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := dvm.Sanitise(c.text); got != c.want {
				t.Errorf("Sanitise(%q) = %q, want %q", c.text, got, c.want)
			}
		})
	}
}

func TestSanitiseCuts(t *testing.T) {
	t.Parallel()
	got := dvm.Sanitise(strings.Repeat("é ", 1000))
	if len(got) > 300 || len(got) < 290 || !strings.HasSuffix(got, "…") {
		t.Errorf("%d bytes: %q", len(got), got)
	}
	secret := strings.Repeat("/home/me/x ", 4096/11) + "token1234567890123456789012345"
	if got := dvm.Sanitise(secret); strings.Contains(got, "token") {
		t.Errorf("a part of the last word is left: %q", got)
	}
}

var (
	longSecret = regexp.MustCompile(`[A-Za-z0-9+/_=\-]{20,}`)
	anyPath    = regexp.MustCompile(`(^|[\s"'=(])(/\w|[A-Z]:\\)`)
	userinfo   = regexp.MustCompile(`://[^\s/"'<>]*@`)
)

func FuzzSanitise(f *testing.F) {
	for _, s := range []string{
		"", "\x1b[31m", "https://a:b@c/d?e", "open /etc/passwd: no", "key=x", "d41d8cd98f00b204e9800998ecf8427e", "\xff\x9b", "a/b C:\\x",
		`password:"/x`, "x://\x1b]y/z@w", "~/x /…/y", "bearer  basic x", "file:///a", "Key:\u009b=/x", "……/x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := dvm.Sanitise(text)
		bad := func(what string) { t.Errorf("Sanitise(%q) = %q: %s", text, got, what) }
		if len(got) > 300 || !utf8.ValidString(got) {
			bad("too long, or not UTF-8")
		}
		if strings.ContainsFunc(got, func(c rune) bool { return !unicode.IsPrint(c) }) {
			bad("something can't be seen")
		}
		for _, w := range longSecret.FindAllString(got, -1) {
			if strings.ContainsFunc(w, unicode.IsDigit) || strings.ContainsFunc(w, unicode.IsUpper) {
				bad("a secret is left")
			}
		}
		if anyPath.MatchString(got) {
			bad("a path is left")
		}
		if userinfo.MatchString(got) {
			bad("a user is left")
		}
	})
}
