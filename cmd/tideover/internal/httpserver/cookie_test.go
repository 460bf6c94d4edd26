package httpserver

import (
	"testing"
	"time"

	"github.com/tideover/tideover/internal/secret"
)

const token = "a-token-of-these-tests"

func TestASessionEnds(t *testing.T) {
	t.Parallel()
	of := func(token string) *guard {
		return &guard{token: secret.New(token), users: []User{{Token: secret.New(token)}}}
	}
	g := of(token)
	begin := time.Unix(1_800_000_000, 0)
	value := g.session(&g.users[0], begin, false).Value
	other, none := of("another"), of("")
	for _, c := range []struct {
		name string
		ok   bool
		want bool
	}{
		{"it is valid at once", g.withSession(value, begin) != nil, true},
		{"and just before its end", g.withSession(value, begin.Add(sessionAge-time.Second)) != nil, true},
		{"but not after", g.withSession(value, begin.Add(sessionAge)) != nil, false},
		{"nor with another token", other.withSession(value, begin) != nil, false},
		{"nor without any", none.withSession(none.session(&none.users[0], begin, false).Value, begin) != nil, false},
		{"nor cut off", g.withSession(value[:len(value)-1], begin) != nil, false},
	} {
		if c.ok != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.ok, c.want)
		}
	}
}
