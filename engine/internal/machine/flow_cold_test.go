package machine

import (
	"bytes"
	"testing"
	"time"
)

func TestColdRunsShareTheirOperation(t *testing.T) {
	warm := sleeping(t, 3)
	data := frames(warm.Snapshot(), nil, 1000)
	m, err := RestoreAt(bytes.NewReader(data), warm.at, true)
	if err != nil {
		t.Fatal(err)
	}
	parts := bodies(t, data)
	m.Cold(func(frame uint32) ([]byte, error) { return parts[frame], nil })
	same := func(when string, from int) {
		t.Helper()
		for _, r := range warm.all[from:] {
			cold := m.byID(r.ID)
			if !cold.IsCold() || cold.flow != m.byID(warm.all[2].ID).flow {
				t.Errorf("%s: run %s is cold: %v, and does not share its operation", when, r.ID, cold.IsCold())
			}
			got, err := m.Encode(nil, cold)
			if want := EncodeRun(r, nil); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: run %s is read back as %x, %v; want %x", when, r.ID, got, err, want)
			}
		}
	}
	same("restored", 0)

	// One of them goes on. The others stay as they are.
	now := warm.at + int64(10*time.Hour)
	first := m.byID(warm.all[0].ID)
	m.Begin(m.Seq()+1, Header{At: now})
	for _, rec := range []Record{m.Slept(first, 4, now), BeginAttempt(first, 0, now)} {
		if err := m.Apply(&rec); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for o := range ReadResults(first.Flow().Results()) {
		names = append(names, o.Name)
	}
	if n, _ := first.Flow().Called(); first.IsCold() || n != 4 || len(first.Steps) != 1 || len(names) != 4 || names[3] != "sleep:cool-down" {
		t.Errorf("after the sleep the run has %d operations, %d steps, results of %q", n, len(first.Steps), names)
	}
	same("beside a run that goes on", 1)
}

// A snapshot copies a cold run from its frame, unless a record has changed it since: the clock may be
// set while the run is cold.
func TestAColdRunIsWrittenInItsCurrentState(t *testing.T) {
	warm := sleeping(t, 3)
	data := frames(warm.Snapshot(), nil, 1000)
	m, err := RestoreAt(bytes.NewReader(data), warm.at, true)
	if err != nil {
		t.Fatal(err)
	}
	parts := bodies(t, data)
	m.Cold(func(frame uint32) ([]byte, error) { return parts[frame], nil })
	compare := func(when string) {
		t.Helper()
		for _, r := range warm.all {
			got, err := m.Encode(nil, m.byID(r.ID))
			if want := EncodeRun(r, nil); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: run %s is written as %x, %v; want %x", when, r.ID, got, err, want)
			}
		}
	}
	compare("restored")
	for _, m := range []*Machine{m, warm} {
		at := m.at + int64(time.Hour)
		m.Begin(m.Seq()+1, Header{At: at})
		if err := m.Apply(&Record{Kind: Jumped, At: at, Delay: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(m.all); n != 3 || !m.all[0].IsCold() {
		t.Errorf("there are %d runs, the first is cold: %v", n, m.all[0].IsCold())
	}
	compare("after the clock was set")
}
