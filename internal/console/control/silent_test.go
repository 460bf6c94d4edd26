package control

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tideover/tideover/retry"
)

func TestSilentInWords(t *testing.T) {
	t.Parallel()
	for want, shards := range map[string][]int{
		"": nil,
		"shard 3 did not answer; its runs are missing":                       {3},
		"shards 3, 7 did not answer; their runs are missing":                 {3, 7},
		"shards 0, 1, 4-9, 12, 30-32 did not answer; their runs are missing": {0, 1, 4, 5, 6, 7, 8, 9, 12, 30, 31, 32},
	} {
		if got := Silent(shards); got != want {
			t.Errorf("Silent(%v) = %q, want %q", shards, got, want)
		}
	}
}

func TestAnEventHasItsMember(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Event{Seq: 1, Message: "m", Member: "a-1", Event: retry.Event{Kind: retry.Succeeded}})
	if err != nil || !strings.Contains(string(text), `"member":"a-1"`) {
		t.Errorf("%s, %v", text, err)
	}
	var e Event
	if err := json.Unmarshal(text, &e); err != nil || e.Member != "a-1" {
		t.Errorf("%+v, %v", e, err)
	}
	if text, _ := json.Marshal(Event{Event: retry.Event{Kind: retry.Succeeded}}); strings.Contains(string(text), "member") {
		t.Errorf("an event of this process: %s", text)
	}
}
