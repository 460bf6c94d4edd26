package plan

import (
	"testing"
	"time"
)

func TestSample(t *testing.T) {
	t.Parallel()
	seed := uint64(42)
	waits := func(text string, list int) (ds []time.Duration) {
		p, err := Parse(text, Options{Seed: &seed, List: list})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range p.Retries {
			ds = append(ds, r.Sample)
		}
		return ds
	}
	all, again := waits("workflow-api", 0), waits("workflow-api", 2)
	if len(all) != 4 || len(again) != 2 || all[0] != again[0] || all[1] != again[1] {
		t.Errorf("samples of one seed differ: %v and %v", all, again)
	}
	if all[0] == time.Second && all[1] == 2*time.Second {
		t.Errorf("samples have no jitter: %v", all)
	}
	seed++
	if other := waits("workflow-api", 0); other[0] == all[0] {
		t.Errorf("samples of two seeds both start with %v", all[0])
	}
	if none := waits("task", 0); none[2] != 4*time.Second {
		t.Errorf("samples of a policy without jitter = %v, want 1s, 2s, 4s", none)
	}
}

func TestParseNamesThePlan(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, name, use string }{
		{"task", "task", "a delegated task"},
		{" task\u00a0\tattempts=2\n", "task attempts=2", ""},
		{"fixed(1s)", "fixed(1s)", ""},
	} {
		p, err := Parse(tt.text, Options{})
		if err != nil || p.Name != tt.name || p.Use != tt.use {
			t.Errorf("Parse(%q) = %q, %q, %v; want %q, %q", tt.text, p.Name, p.Use, err, tt.name, tt.use)
		}
	}
}
