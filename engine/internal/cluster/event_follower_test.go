package cluster

import (
	"context"
	"strings"
	"testing"

	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/journal"
)

// answeringLog answers each request to a member with the same text.
type answeringLog struct {
	journal.Cluster
	text string
}

func (l answeringLog) Ask(context.Context, string, []byte) ([]byte, error) {
	return []byte(l.text), nil
}

// TestEventsOfMembersAreReadByBothNames is for deploys that roll: members write the earlier name until
// all of them read the current one.
func TestEventsOfMembersAreReadByBothNames(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"happened":{"after":7}}`, `{"events":{"after":7}}`} {
		f := eventFollower{log: answeringLog{text: text}}
		if got, err := f.askEvents(t.Context(), "a", 1); err != nil || got.After != 7 {
			t.Errorf("the answer %s is read as %+v, %v", text, got, err)
		}
	}
	if got := string(encodeAnswer(shard.Answer{Happened: &shard.RemoteEvents{After: 7}}, nil)); !strings.Contains(got, `"happened":{`) || strings.Contains(got, `"events":`) {
		t.Errorf("events are written as %s", got)
	}
}
