package secret_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/tideover/tideover/internal/secret"
)

func TestRedact(t *testing.T) {
	for _, c := range []struct {
		name, in, want string
		secrets        []string
	}{
		{"nothing known", "text", "text", nil},
		{"as it is", "a hunter22 b", "a *** b", []string{"hunter22"}},
		{"inside a word", "xhunter22x", "x***x", []string{"hunter22"}},
		{"at both ends", "hunter22 hunter22", "*** ***", []string{"hunter22"}},
		{"touching", "hunter22hunter22", "***", []string{"hunter22"}},
		{"overlapping", "xabcdefx", "x***x", []string{"abcd", "cdef"}},
		{"one inside another", "abcdef abcd", "*** ***", []string{"abcd", "abcdef"}},
		{"short, alone", "pin=abc;", "pin=***;", []string{"abc"}},
		{"short, at the ends", "abc", "***", []string{"abc"}},
		{"short, inside words", "abcd xabc abc_ éabc", "abcd xabc abc_ éabc", []string{"abc"}},
		{"empty and asterisks", "a*****b", "a*****b", []string{"", "*****"}},
		{"base64", base64.StdEncoding.EncodeToString([]byte("user:hunter22!!")), "dXNlcjp***Eh", []string{"hunter22!"}},
		{"URL", "?q=" + url.QueryEscape("p&ss w/rd") + "&r=" + url.PathEscape("p&ss w/rd"), "?q=***&r=***", []string{"p&ss w/rd"}},
		{"JSON", `{"a":"p\"s\u003cs\n"}`, `{"a":"***"}`, []string{"p\"s<s\n"}},
		{"a path", "GET /a/" + (&url.URL{Path: `x"/y+z`}).EscapedPath() + "/b", "GET /a/***/b", []string{`x"/y+z`}},
		{"a user", "http://" + url.User("p$'w+d").String() + "@host", "http://***@host", []string{"p$'w+d"}},
		{"URLs of others", "p%2fss%20w p%2Fss%20w p/ss%20w P", "*** *** *** P", []string{"p/ss w"}},
		{"JavaScript", "it's%2F(a)", "***", []string{"it's/(a)"}},
		{"JSON of others", `a\/b\u003cc' a\/b<c'`, `*** ***`, []string{"a/b<c'"}},
		{"JSON of .NET", `a\u002Bb\u0022\\\u003C`, `***`, []string{`a+b"\<`}},
		{"HTML of others", "a&amp;&quot;b&#x27; a&amp;&quot;b&apos; a&amp;\"b' a&amp;&quot;b&#039;", "*** *** *** ***", []string{`a&"b'`}},
		{"HTML of templates", "a&#43;b&lt;", "***", []string{"a+b<"}},
		{"the path of a URL", "Cannot POST /services/T0AB12CD/x9y8z7w6", "Cannot POST /services/***/***", []string{"https://hooks.example.com/services/T0AB12CD/x9y8z7w6"}},
		{"its query", "?a=1&key=k3yk3yk3y", "?a=1&key=***", []string{"https://example.com/in?a=1&key=k3yk3yk3y"}},
		{"its password", "http://me:***@x and pw", "http://me:***@x and ***", []string{"http://me:pw@x/y"}},
		{"a token behind a scheme", "got t0ken-value", "got ***", []string{"Bearer t0ken-value"}},
		{"words of a secret that are words", "the services of my-topic, correct horse", "the services of my-topic, correct horse", []string{"https://ntfy.sh/my-topic/services", "everyday services battery"}},
		{"numbers and names in a URL", "run 123456789012 of sendMessage", "run 123456789012 of sendMessage", []string{"https://example.com/123456789012/sendMessage"}},
		{"lines of a key", "  AAAABBBBCCCC\n  x", "  ***\n  x", []string{"-----BEGIN KEY-----\nAAAABBBBCCCC\nDDDD\n-----END KEY-----"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := new(secret.Redactor)
			r.Add(c.secrets...)
			if got := r.String(c.in); got != c.want {
				t.Errorf("String(%q) = %q, want %q", c.in, got, c.want)
			}
			for size := 1; size <= len(c.in); size++ {
				if got := streamed(t, r, c.in, size); got != c.want {
					t.Errorf("in pieces of %d: %q, want %q", size, got, c.want)
				}
			}
		})
	}
}

func streamed(t *testing.T, r *secret.Redactor, text string, size int) string {
	t.Helper()
	var b bytes.Buffer
	w := r.NewWriter(&b)
	for p := []byte(text); len(p) > 0; {
		n := min(size, len(p))
		if m, err := w.Write(p[:n]); m != n || err != nil {
			t.Fatalf("Write = %d, %v, want %d", m, err, n)
		}
		p = p[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTheWriterHoldsBackOnlyWhatMayBeASecret(t *testing.T) {
	r := new(secret.Redactor)
	r.Add("hunter22", strings.Repeat("a", 50))
	var b bytes.Buffer
	w := r.NewWriter(&b)
	for _, step := range []struct{ in, want string }{
		{"no secret\n", "no secret\n"}, {"hun", ""}, {"gry", "hungry"}, {"hunter2", ""}, {"2", "***"},
		{"\n" + strings.Repeat("a", 49), "\n"}, {strings.Repeat("a", 10_000), "***"}, {"b", "b"}, {"hunt", ""},
	} {
		b.Reset()
		if _, err := w.Write([]byte(step.in)); err != nil || b.String() != step.want {
			t.Errorf("Write(%.20q) passed on %q, %v, want %q", step.in, b.String(), err, step.want)
		}
	}
	b.Reset()
	if err := w.Close(); err != nil || b.String() != "hunt" {
		t.Errorf("Close passed on %q, %v, want %q", b.String(), err, "hunt")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, fmt.Errorf("disk full") }

func TestTheWriterReturnsErrors(t *testing.T) {
	if _, err := new(secret.Redactor).NewWriter(broken{}).Write([]byte("x")); err == nil {
		t.Error("Write returned no error")
	}
}

func TestRedactorIsSafeForConcurrentUse(t *testing.T) {
	r := new(secret.Redactor)
	var b bytes.Buffer
	w := r.NewWriter(&b)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			s := fmt.Sprintf("secret-%d-value", i)
			r.Add(s)
			if got := r.String(s + string(r.Bytes([]byte(s)))); strings.Contains(got, s) {
				t.Errorf("%q survived", s)
			}
			if _, err := w.Write([]byte(s + "\n")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := w.Close(); err != nil || strings.Contains(b.String(), "secret") {
		t.Errorf("Close: %v; passed on %q", err, b.String())
	}
}

// FuzzRedactor plants two secrets in a text, in all their forms and cut at any
// place, and looks for them in what is left.
func FuzzRedactor(f *testing.F) {
	f.Add("hunter22", "p&ss w/rd", "before", "after", 3)
	f.Add("abcd", "cdef", "ab", "ef", 1)
	f.Add("a\nb\"c<", "\xff\xfe\xfd\xfc", "", "\x00", 7)
	f.Fuzz(func(t *testing.T, a, b, before, after string, size int) {
		if len(a) < 4 || len(b) < 4 || len(a)+len(b)+len(before)+len(after) > 1000 || strings.Contains(a+b, "*") {
			return // a secret with asterisks may be put together by the mask itself
		}
		r := new(secret.Redactor)
		r.Add(a, b)
		for _, s := range []string{a, b} {
			j, _ := json.Marshal(s)
			for name, form := range map[string]string{
				"plain": s, "query": url.QueryEscape(s), "path": url.PathEscape(s), "JSON": string(j),
				"Go": fmt.Sprintf("%q", s), "HTML": html.EscapeString(s),
				"base64": base64.StdEncoding.EncodeToString([]byte(s)),
			} {
				text := before + form + after
				got := r.String(text)
				if again := streamed(t, r, text, 1+abs(size)%(len(text)+1)); again != got {
					t.Fatalf("%s of %q: as a stream %q, at once %q", name, s, again, got)
				}
				if name == "base64" && len(s)*8/6 < 6 {
					continue // too short to tell
				}
				core := strings.Trim(form, `"=`)
				if name == "base64" {
					core = form[:len(s)*8/6] // the last character is shared with what follows
				}
				if strings.Contains(got, core) && !strings.Contains(secret.Mask, core) && strings.Contains(form, core) && len(core) >= 4 {
					t.Fatalf("%s of %q survived in %q -> %q", name, s, text, got)
				}
			}
		}
	})
}

func abs(n int) int { return max(n, -(n + 1)) }

func TestUnquoted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"EOF":                           "EOF",
		`malformed "a" and "b\"c\\" x`:  `malformed "…" and "…" x`,
		`it does not "end`:              `it does not "…"`,
		`nothing ""`:                    `nothing "…"`,
		"a line \"one\ntwo\" and more":  `a line "…" and more`,
		fmt.Sprintf("%q", `\" "quoted`): `"…"`,
	} {
		if got := secret.Unquoted(text); got != want {
			t.Errorf("Unquoted(%q) = %q, want %q", text, got, want)
		}
	}
}

func FuzzUnquoted(f *testing.F) {
	f.Add("before ", `hush"\`, " after")
	f.Fuzz(func(t *testing.T, before, hidden, after string) {
		if strings.Contains(before+after, `"`) || len(hidden) < 4 || strings.Contains(before+after, hidden) {
			return
		}
		if got := secret.Unquoted(before + fmt.Sprintf("%q", hidden) + after); got != before+`"…"`+after {
			t.Errorf("%q, %q, %q: %q", before, hidden, after, got)
		}
	})
}
