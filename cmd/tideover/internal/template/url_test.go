package template_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/secret"
)

var urlFields = template.Fields{First: []string{"input"}}

func urlScope(values map[string]any) *template.Scope {
	env := map[string]string{"BASE": "https://base.example/hook?key=PLANTED", "HOST": "base.example", "KEY": "a+b"}
	return &template.Scope{Root: map[string]any{"input": values}, Secrets: secret.Resolver{LookupEnv: func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}}}
}

func renderURL(t *testing.T, src, value string, allowed ...string) (string, error) {
	t.Helper()
	text, err := template.Parse(src, template.WithRefs, urlFields)
	if err != nil {
		t.Fatal(err)
	}
	return text.RenderURL(urlScope(map[string]any{"x": value, "list": []any{value, value}}), hosts.New(allowed))
}

func TestRenderURL(t *testing.T) {
	t.Parallel()
	const other = "another scheme, host or port"
	for _, c := range []struct{ src, value, want string }{
		{"https://a.example/{{ .input.x }}", "b c", "https://a.example/b%20c"},
		{"https://a.example/{{ .input.x }}/d", "b/../c?e#f", "https://a.example/b%2F..%2Fc%3Fe%23f/d: the path has"},
		{"https://a.example/{{ .input.x }}/d", "b/c?e#f@g:1", "https://a.example/b%2Fc%3Fe%23f@g:1/d"},
		{"https://a.example/{{ .input.x }}", "..", "the path has"},
		{"https://a.example/{{ .input.x }}.{{ .input.x }}", ".", "https://a.example/..."},
		{"https://a.example/.{{ .input.x }}", ".", "the path has"},
		{"https://a.example/{{ .input.x }}", "%2e%2e", "https://a.example/%252e%252e"},
		{"https://a.example/{{ urlquery .input.x }}", "b c", "https://a.example/b%20c"},
		{"https://a.example/?q={{ .input.x }}", "1&r=2 +#", "https://a.example/?q=1%26r%3D2+%2B%23"},
		{"https://a.example?q={{ urlquery .input.x }}", "1&r=2 +", "https://a.example?q=1%26r%3D2+%2B"},
		{"https://a.example/?q={{ .input.x | urlquery | printf \"%s!\" }}", "a b", "https://a.example/?q=a+b%21"},
		{"https://a.example/#{{ .input.x }}", "?/", "https://a.example/#%3F%2F"},
		{"https://a.example{{ range .input.list }}/{{ . }}{{ end }}", "b/c", "https://a.example/b%2Fc/b%2Fc"},
		{"https://{{ .input.x }}:${env:KEY}@a.example/", "me@other.example/", "https://me%40other.example%2F:a+b@a.example/"},
		{"${env:BASE}&x={{ .input.x }}", "1&2", "https://base.example/hook?key=PLANTED&x=1%262"},
		{"${env:BASE}{{ .input.x }}", "1&2@other.example", "https://base.example/hook?key=PLANTED1%262%40other.example"},
		{"https://${env:HOST}/{{ .input.x }}", "a", "https://base.example/a"},

		// The example of the report: the value stands behind the host, without a slash.
		{"http://a.example{{ .input.x }}", "/b?c=d", "http://a.example/b?c=d"},
		{"http://a.example{{ .input.x }}", ":80/b", "http://a.example:80/b"},
		{"http://a.example{{ .input.x }}", "@other.example:81/x", other},
		{"http://a.example{{ .input.x }}", ".other.example/x", other},
		{"http://a.example{{ .input.x }}", ":81/x", other},
		{"http://a.example{{ .input.x }}", "\\@other.example/x", "http://a.example\\@other.example/x"}, // which is not a URL
		{"http://a.example{{ .input.x }}/secret", "/b/../..", "the path has"},
		{"http://[::1]{{ .input.x }}", "/b", "http://[::1]/b"},
		{"http://[::1]{{ .input.x }}", ":99/b", other},
		{"http:/{{ .input.x }}/a", "/other.example", other},
		{"{{ .input.x }}", "http://other.example/", other},
		{"{{ .input.x }}", "http://allowed.example@other.example/", other},
		{"{{ .input.x }}", "https://ALLOWED.example:443/b/c?d", "https://ALLOWED.example:443/b/c?d"},
		{"{{ .input.x }}", "https://allowed.example:444/", other},
		{"{{ .input.x }}/c", "http://[2001:db8::1]:8080/b?", "http://[2001:db8::1]:8080/b?/c"},
		{"{{ .input.x }}", "http://[2001:db8::1]/", other},
		{"{{ .input.x }}://a.example/", "https", other},
		{"{{ .input.x }}://allowed.example/", "http", "http://allowed.example/"},
		{"https://{{ .input.x }}/", "allowed.example", "https://allowed.example/"},
		{"https://{{ .input.x }}/", "allowed.example/@other.example", "https://allowed.example/@other.example/"},
	} {
		got, err := renderURL(t, c.src, c.value, "allowed.example", "[2001:db8::1]:8080")
		if err != nil {
			got = got + ": " + err.Error()
			if !strings.Contains(got, c.want) {
				t.Errorf("%s with %q: %s, want %s", c.src, c.value, got, c.want)
			}
		} else if got != c.want {
			t.Errorf("%s with %q: %s, want %s", c.src, c.value, got, c.want)
		}
	}
}

func TestChoosesHost(t *testing.T) {
	t.Parallel()
	for src, want := range map[string]bool{
		"https://a.example/{{ .input.x }}":                           false,
		"https://a.example?{{ .input.x }}":                           false,
		"https://a.example{{ .input.x }}":                            true,
		"https://{{ .input.x }}@a.example/":                          false,
		"https://u:{{ .input.x }}@a.example":                         false,
		"https://u@{{ .input.x }}/":                                  true,
		"{{ .input.x }}":                                             true,
		"{{ .input.x }}/b":                                           true,
		"${env:BASE}/{{ .input.x }}":                                 false,
		"${env:BASE}{{ .input.x }}":                                  true,
		"https://${env:HOST}/{{ .input.x }}":                         false,
		"http{{ if .input.x }}s{{ end }}://a.example/{{ .input.x }}": false,
		"{{ if .input.x }}https://a.example/{{ else }}http://b.example{{ end }}{{ .input.x }}": true,
		"{{ if .input.x }}https://a.example/{{ else }}{{ .input.x }}{{ end }}":                 true,
		"{{ $v := .input.x }}https://a.example/{{ $v }}":                                       false,
		"https://a.example/": false,
	} {
		text, err := template.Parse(src, template.WithRefs, urlFields)
		if err != nil {
			t.Fatal(err)
		}
		if got := text.ChoosesHost(); got != want {
			t.Errorf("%s: %v, want %v", src, got, want)
		}
	}
}

// FuzzRenderURL checks that no value changes the scheme, the host, the port or the number of segments of
// the path of a URL, and that the server gets the value as it was.
func FuzzRenderURL(f *testing.F) {
	for _, v := range []string{"", "a", "/../", "..", ".", "%2f", "%2e%2e", "?", "#", "@other.example:1/x", `\`, "\t", "\r\nHost: x", "://", "//other.example", ":1", "[::1]", "é", "\x00\xff", "{{ .input.x }}", "${env:KEY}"} {
		f.Add(v, v)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		for src, literal := range map[string]string{
			"https://a.example:8443/p/{{ .input.a }}/q/{{ .input.b }}?r={{ .input.a }}&s={{ .input.b }}#{{ .input.a }}": "https://a.example:8443/p/x/q/x?r=x&s=x#x",
			"https://{{ .input.a }}:{{ .input.b }}@[::1]:8443/{{ .input.a }}":                                           "https://x:x@[::1]:8443/x",
			"http://a.example{{ .input.a }}{{ .input.b }}":                                                              "",
			"{{ .input.a }}{{ .input.b }}":                                                                              "",
			"http://a.example{{ .input.a }}/{{ .input.b }}":                                                             "",
		} {
			text, err := template.Parse(src, template.WithRefs, urlFields)
			if err != nil {
				t.Fatal(err)
			}
			got, err := text.RenderURL(urlScope(map[string]any{"a": a, "b": b}), nil)
			if err != nil {
				continue // refused
			}
			u, err := url.Parse(got)
			if literal == "" {
				if err == nil && u.Host != "" && (u.Scheme != "http" || strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(u.Host), ":80"), ":") != "a.example") {
					t.Fatalf("%s with %q, %q leads to %s://%s", src, a, b, u.Scheme, u.Host)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s with %q, %q: %v", src, a, b, err)
			}
			want, _ := url.Parse(literal)
			if u.Scheme != want.Scheme || u.Host != want.Host || strings.Count(u.EscapedPath(), "/") != strings.Count(want.EscapedPath(), "/") || len(u.Query()) != len(want.Query()) {
				t.Fatalf("%s with %q, %q: %s", src, a, b, got)
			}
			if q := u.Query(); len(want.Query()) > 0 && (q.Get("r") != a || q.Get("s") != b || u.Path != "/p/"+a+"/q/"+b) {
				t.Fatalf("%s with %q, %q: %s", src, a, b, got)
			}
		}
	})
}
