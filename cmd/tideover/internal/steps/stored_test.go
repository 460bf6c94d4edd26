package steps

import (
	"encoding/json"
	"testing"
)

// A step that an earlier release stored inherits all variables, as it did when its run began.
func TestAStoredStepOfAnEarlierReleaseInheritsAll(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"id":"a","policy":"task","base":"/","run":["x"],"output_limit":0}`:                       true,
		`{"id":"a","policy":"task","base":"/","run":["x"],"output_limit":0,"env_inherit":[]}`:      false,
		`{"id":"a","policy":"task","base":"/","run":["x"],"output_limit":0,"env_inherit":["ANY"]}`: true,
	} {
		s := new(Step)
		if err := json.Unmarshal([]byte(text), s); err != nil {
			t.Fatal(err)
		}
		if got := s.Inherit.Has("ANY"); got != want {
			t.Errorf("%s inherits ANY: %v, want %v", text, got, want)
		}
	}
	old, now := `{"id":"a","policy":"task","base":"/","run":["x"],"output_limit":0}`, `{"id":"a","policy":"task","base":"/","run":["x"],"output_limit":0,"env_inherit":[]}`
	if !SameWork(json.RawMessage(old), json.RawMessage(now)) {
		t.Error("a step that was stored by an earlier release does other work")
	}
}
