package control

import (
	"encoding/json"
	"testing"
	"time"
)

func TestNamesThatStandTwice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, path string }{
		{`{"a":1,"a":2}`, "a"},
		{`{"a":1,"\u0061":2}`, "a"},
		{`{"a":{"b":1},"c":{"b":1}}`, ""},
		{`{"a":{"b":1,"c":[],"b":2}}`, "a.b"},
		{`{"a":[{"b":1},{"b":1}]}`, ""},
		{`{"a":[[{"b":{}},{"b":{"c":1,"c":1}}]]}`, "a.b.c"},
		{`{"a":"a","b":["a","a"],"A":1}`, ""},
		{`{"":1,"":2}`, ""},
	} {
		path, twice := Duplicate([]byte(c.text))
		if path != c.path || twice != (c.path != "" || c.text == `{"":1,"":2}`) {
			t.Errorf("Duplicate(%s) = %q, %v; want %q", c.text, path, twice, c.path)
		}
	}
}

func TestSpansComeBack(t *testing.T) {
	t.Parallel()
	for _, d := range []time.Duration{1, time.Millisecond, 90 * time.Second, longest} {
		text, err := json.Marshal(Start{Timeout: Span(d)})
		var back Start
		if err != nil || json.Unmarshal(text, &back) != nil || time.Duration(back.Timeout) != d {
			t.Errorf("%v became %s became %v, %v", d, text, time.Duration(back.Timeout), err)
		}
	}
}
