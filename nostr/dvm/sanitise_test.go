package dvm_test

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/nostr/dvm"
)

func TestSanitise(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, text, want string }{
		{"plain words stay", "the printer is on fire (attempt 2 of 3)", "the printer is on fire (attempt 2 of 3)"},
		{"lines become one", "a\r\n\tb\n\n c\u2028d", "a b c d"},
		{"colours go", "\x1b[1;31mred\x1b[0m and \u009b31mmore", "red and more"},
		{"a window title goes", "x\x1b]0;owned\x07y\x1b]8;;http://e\x1b\\z", "xyz"},
		{"control characters go", "a\x00b\x07c\u202ed\ufeffe", "abcde"},
		{"a link keeps its scheme", "Get \"https://user:pw@api.example.com:8443/v1/x?token=abc#f\": EOF", "Get \"https://…\": EOF"},
		{"a password with a quote", `get https://me:p"w@example.com/x: no`, "get https://… no"},
		{"links in quotes", `["https://a.example/x?y","https://me:pw@b.example/z"]`, `["https://…","https://…"]`},
		{"an at sign in a path", "https://example.com/@me", "https://…"},
		{"a scheme that is none", "S3CRET://example.com", "…://…"},
		{"a link without a host", "file:///home/me/.ssh/id", "file://…"},
		{"a relay", "dial wss://relay.example/inbox: refused", "dial wss://… refused"},
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

// befores are texts of programs and libraries; a golden file has their
// sanitised form.
var befores = []string{
	// Network errors become a phrase.
	`Post "https://agent.internal.corp:8443/jobs?x=1": dial tcp 10.1.2.3:8443: connect: connection refused`,
	`Get "http://db7.prod.example.internal/": dial tcp: lookup db7.prod.example.internal on 10.0.0.2:53: no such host`,
	`lookup db7.prod.example on 10.0.0.2:53: server misbehaving`,
	`dial tcp [fd00::12]:5432: i/o timeout`,
	`net/http: TLS handshake timeout`,
	`remote error: TLS handshake: bad certificate of db7`,
	`dial tcp 10.1.2.3:443: connect: no route to host`,

	// Hosts and addresses.
	`connect to db7 failed`, `lookup agent7: gone`, `dial redis: gone`, `connect to the database failed`, `lookup table is empty`,
	`pq: password authentication failed for user "postgres" on host db01.corp.local`,
	`upstream 10.1.2.3 said no`, `upstream 10.1.2.3:8080/x said no`, `peer [fd00::12]:5432 left`, `peer fe80::1%eth0, ::1 left`,
	`db:5432 is away, localhost:8080 too, cache-1:80 as well`, `mail for alice@example.com bounced`, `user:pass@host:5432/db`,
	`ssh: handshake failed: root@build-17.corp.local: bad`,

	// Paths.
	`open secrets/prod/key.yaml: no such file or directory`, `open ../../etc/shadow: permission denied`, `open ./config/db.yaml: no`,
	`(/home/alice/x)`, `path=/home/alice/x`, `~alice/.ssh/id_rsa`, `~alice is away`, `~5 of them`, `error in /srv`, `\\fileserver\share\x`, `$HOME/x and file /`,
	`é/home/alice/secret`, `a…/home/alice`, `日本/home/alice`, `C:\Program Files\x`, `//fileserver/x`, `file:///etc/passwd missing`,

	// Secrets.
	`invalid api key sk-abc123def456`, `Incorrect API key provided: sk-abc1234567`, `token abc123def was refused`, `the token has expired`,
	`Authorization: Token abcdef`, `Authorization: Digest username=bob realm=x, next`, `"Authorization": "Token abc def", "x": 1`,
	`"password": "a b c"`, `PGPASSWORD hunter2`, `xhttp://user:pass@host/`, `AKIAIOSFODNN7EXAMPL`, `AWS secret wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY`,

	// Ordinary text stays unchanged.
	`1/3 of a/b, read/write, n/a, 20 req/s, text/plain; charset=utf-8`, `exit status 1`, `status:500 at 12:30:45 on 2026-11-15`, `want 1.5, got 1.2.3 (v1.26.0)`,
	`timeout "30s": want whole seconds, 1 to 600`, `no room for another job; try again later`, `json: cannot unmarshal string into Go value of type int`,
	`Operation timed out after 2000ms`, `HTTP 503: Service Unavailable`, `std::bad_alloc`, `rate limit reached; try again in 20s`, `file not found: report.txt`,
}

func TestSanitiseGolden(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	for _, text := range befores {
		b.WriteString(text + "\n\t" + dvm.Sanitise(text) + "\n")
	}
	testfile.Golden(t, "testdata/sanitise.txt", b.String())
}

var (
	ipv4       = regexp.MustCompile(`(^|\D)\d{1,3}(\.\d{1,3}){3}($|\D)`)
	linked     = regexp.MustCompile(`://[^…]`)
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
	for _, s := range befores {
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
		if ipv4.MatchString(got) {
			bad("an address is left")
		}
		if linked.MatchString(got) {
			bad("a host is left")
		}
	})
}
