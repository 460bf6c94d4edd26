package api

import (
	"encoding/json"
	"testing"

	"github.com/tideover/tideover/internal/console/control"
)

// FuzzStart checks that the parser accepts only bodies that a strict JSON parser reads in the same way.
func FuzzStart(f *testing.F) {
	for _, s := range []string{`{"workflow":"a"}`, `{"workflow":"a","timeout":5}`, `{"workflow":"a","timeout":"1s","input":{"x":[1,{"y":2}]}}`, `{"workflow":"a","in":1,"in":2}`, `[]`, `{"a":{"a":1,"a":1}}`, "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := parseObject(data)
		if err != nil {
			return
		}
		st, err := readStart(o)
		if err != nil {
			if p := control.AsError(err); p.Status != 400 {
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
		if err != nil {
			t.Fatalf("%q became %s: %v", data, text, err)
		}
		back, err := readStart(again)
		if err != nil || back.Timeout != st.Timeout || back.In != st.In || !back.At.Equal(st.At) || back.Key != st.Key {
			t.Errorf("%q became %s became %+v, %v", data, text, back, err)
		}
	})
}
