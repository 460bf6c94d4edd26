package httpserver

import (
	"testing"
	"time"

	"github.com/tideover/tideover/internal/secret"
)

const token = "a-token-of-these-tests"

func TestASessionEnds(t *testing.T) {
	t.Parallel()
	g := &guard{token: secret.New(token)}
	begin := time.Unix(1_800_000_000, 0)
	value := g.session(begin, false).Value
	other := &guard{token: secret.New("another")}
	for _, c := range []struct {
		name string
		ok   bool
		want bool
	}{
		{"it is valid at once", g.validSession(value, begin), true},
		{"and just before its end", g.validSession(value, begin.Add(sessionAge-time.Second)), true},
		{"but not after", g.validSession(value, begin.Add(sessionAge)), false},
		{"nor with another token", other.validSession(value, begin), false},
		{"nor without any", (&guard{}).validSession((&guard{}).session(begin, false).Value, begin), false},
		{"nor cut off", g.validSession(value[:len(value)-1], begin), false},
	} {
		if c.ok != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.ok, c.want)
		}
	}
}
