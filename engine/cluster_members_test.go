package engine

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// AskMembers asks every other member, and returns an error for each that does not answer.
func TestMembersAnswerEachOther(t *testing.T) {
	t.Parallel()
	together(t, func(t *testing.T, s *memlog.Store) {
		answers := func(name string) Config {
			return Config{AnswerMember: func(_ context.Context, request json.RawMessage) (json.RawMessage, error) {
				if string(request) != `{"ask":1}` {
					return nil, errors.New("refused")
				}
				return json.Marshal(name)
			}}
		}
		a, b := joined(t, s, "a", answers("a")), joined(t, s, "b", answers("b"))
		old := joined(t, s, "old", Config{})
		settled(t, a, b, old)
		ask := func(request string) string {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var got []string
			for _, r := range must(a.Operator().AskMembers(ctx, json.RawMessage(request))) {
				text := r.Member.Name + " " + string(r.Reply)
				if r.Err != nil {
					text = r.Member.Name + ": " + r.Err.Error()
				}
				got = append(got, text)
			}
			return strings.Join(got, "; ")
		}
		if got := ask(`{"ask":1}`); got != `b "b"; old: `+shard.ErrCall.Error() {
			t.Errorf("the members answer %s", got)
		}
		if got := ask(`{}`); !strings.HasPrefix(got, "b: refused; ") {
			t.Errorf("an error of a member: %s", got)
		}
		b.kill()
		if got := ask(`{"ask":1}`); strings.Contains(got, `"b"`) || !strings.HasPrefix(got, "b: ") && strings.Contains(got, "b ") {
			t.Errorf("after the death of b: %s", got)
		}
	})
	alone := opened(t, Config{Log: new(memlog.Store).Open()})
	if list, err := alone.Operator().AskMembers(t.Context(), nil); list != nil || err != nil {
		t.Errorf("without a cluster: %v, %v", list, err)
	}
}
