package machine

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/retry"
)

func TestPrepareNamesEverythingThatIsWrong(t *testing.T) {
	good := func() *Definition {
		return steps(t, "w", "a: fixed(1s)", "b needs a: fixed(1s)", "c needs a,b: fixed(1s)")
	}
	tests := []struct {
		name  string
		spoil func(*Definition)
		want  string // empty means nothing
	}{
		{"nothing", func(*Definition) {}, ""},
		{"no name", func(d *Definition) { d.Name = "" }, "name:"},
		{"no steps", func(d *Definition) { d.Steps = nil }, "steps:"},
		{"too many steps", func(d *Definition) { d.Steps = make([]Step, maxSteps+1) }, "steps: 1001, at most 1000"},
		{"a negative timeout", func(d *Definition) { d.Timeout = -1 }, "timeout:"},
		{"two steps of a name", func(d *Definition) { d.Steps[1].Name = "a" }, `step "a": there are two`},
		{"a step without a name", func(d *Definition) { d.Steps[2].Name = "" }, "a step needs one"},
		{"a step without a handler", func(d *Definition) { d.Steps[0].Handler = "" }, `step "a": handler`},
		{"a policy that is wrong", func(d *Definition) { d.Steps[0].Policy.Attempts = -5 }, `step "a": policy`},
		{"a policy that a step can't honour", func(d *Definition) { d.Steps[0].Policy.Hedge = retry.Hedge{After: 1} }, "hedge"},
		{"a negative heartbeat", func(d *Definition) { d.Steps[0].Heartbeat = -1 }, "heartbeat"},
		{"a negative number of lost attempts", func(d *Definition) { d.Steps[0].MaxLost = -1 }, "max lost"},
		{"more lost attempts than can be counted", func(d *Definition) { d.Steps[0].MaxLost = math.MaxUint16 + 1 }, "max lost"},
		{"a need that there is not", func(d *Definition) { d.Steps[1].Needs = []string{"x"} }, `needs "x", but`},
		{"a step that needs itself", func(d *Definition) { d.Steps[0].Needs = []string{"a"} }, "needs itself"},
		{"a need twice", func(d *Definition) { d.Steps[1].Needs = []string{"a", "a"} }, `needs "a" twice`},
		{"a circle", func(d *Definition) { d.Steps[0].Needs = []string{"c"} }, "through other steps"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			d := good()
			test.spoil(d)
			err := d.Prepare()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("Prepare = %v, want %q", err, test.want)
			}
		})
	}
}

func TestDefinitionRoundTrip(t *testing.T) {
	d := steps(t, "w", "a: exponential(1s..1m) jitter=full attempts=unlimited attempt-timeout=3s", "b needs a: http", "c: fixed(0s)")
	d.Timeout, d.Steps[1].Heartbeat, d.Steps[1].MaxLost = time.Hour, time.Second, 0
	if err := d.Prepare(); err != nil {
		t.Fatal(err)
	}
	got, err := ParseDefinition(d.text)
	if err != nil {
		t.Fatal(err)
	}
	if got.Hash() != d.Hash() || !bytes.Equal(got.text, d.text) || got.Timeout != d.Timeout || len(got.Steps) != 3 {
		t.Errorf("ParseDefinition(%s) = %+v", d.text, got)
	}
	for i := range d.Steps {
		a, b := d.Steps[i], got.Steps[i]
		if fmt.Sprint(a) != fmt.Sprint(b) || a.Policy != b.Policy {
			t.Errorf("step %d\n got %+v\nwant %+v", i, b, a)
		}
	}
	other := steps(t, "w", "a: fixed(2s)")
	if err := other.Prepare(); err != nil || other.Hash() == d.Hash() {
		t.Errorf("Prepare = %v; two definitions have one hash", err)
	}
}

func TestUpstreamAndDownstream(t *testing.T) {
	d := steps(t, "w", "a: fixed(1s)", "b needs a: fixed(1s)", "c needs a: fixed(1s)", "d needs b,c: fixed(1s)", "e: fixed(1s)")
	if err := d.Prepare(); err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]bool{{true, true, true, true, false}, {false, true, false, true, false}, {false, false, true, true, false}, {3: true, 4: false}, {4: true}} {
		if got := d.Downstream(i); !slices.Equal(got, want) {
			t.Errorf("Downstream(%d) = %v, want %v", i, got, want)
		}
		for j := range d.Steps {
			if got := d.Upstream(j, i); got != (i != j && want[j]) {
				t.Errorf("Upstream(%d, %d) = %v", j, i, got)
			}
		}
	}
	if d.Index("c") != 2 || d.Index("x") != -1 {
		t.Error("Index is wrong")
	}
}

func FuzzParseDefinition(f *testing.F) {
	for _, lines := range [][]string{
		{"a: fixed(1s)"}, {"a: http", "b needs a: fixed(1s) attempts=3", "c needs a,b: decorrelated(1s..5s) attempts=unlimited"},
	} {
		d := steps(f, "w", lines...)
		d.Timeout = time.Minute
		if err := d.Prepare(); err != nil {
			f.Fatal(err)
		}
		f.Add(d.text)
	}
	f.Add([]byte(`{"name":"w","steps":[{},{},{}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		bounded(t, len(text), func() {
			d, err := ParseDefinition(text)
			if err != nil {
				return
			}
			hash := d.Hash()
			if err := d.Prepare(); err != nil {
				t.Fatalf("Prepare for the second time = %v", err)
			}
			again, err := ParseDefinition(d.text)
			if err != nil {
				t.Fatalf("ParseDefinition(%q) = %v", d.text, err)
			}
			if err := again.Prepare(); err != nil || again.Hash() != d.Hash() || len(again.Steps) != len(d.Steps) {
				t.Errorf("the definition %x of %q is not that of its own text", hash, text)
			}
		})
	})
}
