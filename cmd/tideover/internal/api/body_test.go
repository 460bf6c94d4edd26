package api

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

// FuzzStart checks that what is accepted is what any strict reader would read.
func FuzzStart(f *testing.F) {
	for _, s := range []string{`{"workflow":"a"}`, `{"workflow":"a","timeout":5}`, `{"workflow":"a","timeout":"1s","input":{"x":[1,{"y":2}]}}`, `{"workflow":"a","in":1,"in":2}`, `[]`, `{"a":{"a":1,"a":1}}`, "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := parseObject(data)
		if err != nil {
			return
		}
		var st Start
		if err := st.read(o); err != nil {
			if p := problem(err); p.Status != 400 {
				t.Errorf("%q: %+v", data, p)
			}
			return
		}
		if st.Workflow == "" || st.Timeout < 0 || st.In < 0 || len(st.Input) > 0 && !json.Valid(st.Input) {
			t.Errorf("%q was read as %+v", data, st)
		}
		text, err := json.Marshal(st)
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		again, err := parseObject(text)
		var back Start
		if err != nil || back.read(again) != nil || back.Timeout != st.Timeout || back.In != st.In || !back.At.Equal(st.At) || back.Key != st.Key {
			t.Errorf("%q became %s became %+v, %v", data, text, back, err)
		}
	})
}
