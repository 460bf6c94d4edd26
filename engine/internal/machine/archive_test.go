package machine

import (
	"bytes"
	"errors"
	"testing"
)

func TestDecode(t *testing.T) {
	w := sample(t)
	for _, r := range w.m.all {
		got, err := w.m.Decode(EncodeRun(r, nil))
		if err != nil {
			t.Fatal(err)
		}
		got.done, got.active = r.done, r.active // of no use to a reader
		if a, b := dumpRun(got), dumpRun(r); a != b || got.Version() != r.Version() {
			t.Errorf("Decode\n got %s\nwant %s", a, b)
		}
		input := bytes.Clone(r.Input)
		if got, err = w.m.Decode(EncodeWithout(r, nil)); err != nil || got.Input != nil || !bytes.Equal(r.Input, input) {
			t.Errorf("Decode without the input = %v, input %q and then %q", err, got.Input, r.Input)
		}
		if c, err := w.m.Copy(r); err != nil || c.State() != r.State() {
			t.Errorf("Copy = %v; it is %v, want %v", err, c.State(), r.State())
		}
	}
	if _, err := New().Decode(EncodeRun(w.m.all[0], nil)); !errors.Is(err, ErrEncoding) {
		t.Errorf("Decode without the definition = %v", err)
	}
}

func TestArchive(t *testing.T) {
	w := sample(t)
	var data, part []byte
	for i, r := range w.m.all {
		if part = EncodeRun(r, part); i%2 == 1 {
			data, part = AppendArchive(data, part), nil
		}
	}
	var got []ID
	if err := w.m.ReadArchive(bytes.NewReader(data), func(r *Run) error { got = append(got, r.ID); return nil }); err != nil {
		t.Fatal(err)
	}
	for i, r := range w.m.all {
		if i >= len(got) || got[i] != r.ID {
			t.Fatalf("ReadArchive yields %v", got)
		}
	}
	stop := errors.New("stop")
	if err := w.m.ReadArchive(bytes.NewReader(data), func(*Run) error { return stop }); err != stop {
		t.Errorf("ReadArchive = %v, want the error of yield", err)
	}
	if err := w.m.ReadArchive(bytes.NewReader(data[:len(data)-1]), func(*Run) error { return nil }); !errors.Is(err, ErrEncoding) {
		t.Errorf("ReadArchive of a part = %v", err)
	}
	if err := w.m.ReadArchive(bytes.NewReader(frame(nil, frameEnd, nil)), func(*Run) error { return nil }); !errors.Is(err, ErrEncoding) {
		t.Errorf("ReadArchive of something else = %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	w := sample(f)
	for _, r := range w.m.all {
		f.Add(EncodeRun(r, nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		bounded(t, len(data), func() {
			_ = w.m.ReadArchive(bytes.NewReader(data), func(*Run) error { return nil })
			_ = w.m.ReadArchive(bytes.NewReader(AppendArchive(nil, data)), func(r *Run) error {
				use(r)
				return nil
			})
			r, err := w.m.Decode(data)
			if err != nil {
				return
			}
			use(r)
			again, err := w.m.Decode(EncodeRun(r, nil))
			if err != nil {
				t.Fatalf("Decode of what was decoded = %v", err)
			}
			if a, b := dumpRun(again), dumpRun(r); a != b {
				t.Errorf("Decode of what was decoded\n got %s\nwant %s", a, b)
			}
		})
	})
}

// use calls the methods of a run that readers use.
func use(r *Run) {
	_ = r.State().String()
	_, _, _ = Situation(r)
	_, _, _, _ = r.Next(), r.Attempts(), r.Result(), r.Outputs()
	for rec := range r.Records() {
		_, _, _ = rec.Kind.String(), rec.Reason.String(), rec.By.String()
	}
}
