package hosts_test

import (
	"testing"

	"github.com/tideover/tideover/internal/hosts"
)

func TestSet(t *testing.T) {
	t.Parallel()
	set := hosts.New([]string{"Example.com", "api.example.com:8443", "2001:db8::1", "dot.example."})
	for _, c := range []struct {
		host       string
		has, names bool
	}{
		{"", false, false},
		{"example.com", true, true},
		{"EXAMPLE.com.", true, true},
		{"example.com:80", true, false},
		{"api.example.com:8443", true, true},
		{"api.example.com", false, false},
		{"api.example.com:80", false, false},
		{"[2001:db8::1]:80", true, false},
		{"[2001:db8::1]", true, true},
		{"dot.example", true, true},
		{"localhost", true, false},
		{"localhost:7878", true, false},
		{"127.0.0.1:7878", true, false},
		{"[::1]:7878", true, false},
		{"[::ffff:127.0.0.1]:80", true, false},
		{"localhost.example.org", false, false},
		{"other.example.com", false, false},
	} {
		if has, names := set.Has(c.host), set.Names(c.host); has != c.has || names != c.names {
			t.Errorf("%q: Has = %v, Names = %v, want %v, %v", c.host, has, names, c.has, c.names)
		}
	}
}

func TestSame(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"example.com", "EXAMPLE.com.", true},
		{"example.com:80", "example.com.:80", true},
		{"[::1]", "::1", true},
		{"example.com", "example.com:80", false},
	} {
		if got := hosts.Same(c.a, c.b); got != c.want {
			t.Errorf("Same(%q, %q) = %v, want %v", c.a, c.b, got, c.want)
		}
	}
}
