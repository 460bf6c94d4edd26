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

// The numbers in a stored step keep all their digits.
func TestAStoredStepKeepsLargeNumbers(t *testing.T) {
	t.Parallel()
	const text = `{"id":"a","policy":"task","base":"/","output_limit":0,"for_each":[9007199254740993],"workflow":"w","input":{"id":12345678901234567890,"f":1.5}}`
	s := new(Step)
	if err := json.Unmarshal([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	d := Data{}
	r, err := s.renderer(d)
	if err != nil {
		t.Fatal(err)
	}
	items, err := r.items()
	if err != nil {
		t.Fatal(err)
	}
	input, err := childInput(s, d.with(items[0]))
	if err != nil {
		t.Fatal(err)
	}
	item, err := json.Marshal(items[0].Value)
	if got := string(item) + string(input); err != nil || got != `9007199254740993{"f":1.5,"id":12345678901234567890}` {
		t.Errorf("the item and the input are %s, %v", got, err)
	}
	if SameWork(json.RawMessage(`{"input":9007199254740993}`), json.RawMessage(`{"input":9007199254740992}`)) {
		t.Error("steps that differ in the last digit of a number do the same work")
	}
}
