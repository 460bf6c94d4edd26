package machine

import "testing"

func TestOpKindOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		identity, kind string
		waits          Waits
		signal         string // "" if the operation waits for none
	}{
		{"do:charge", DoKind, ForAttempts, ""},
		{"do", DoKind, ForAttempts, ""},
		{"item:send#3", ItemKind, ForAttempts, ""},
		{"map:send", MapKind, ForAttempts, ""},
		{"child:a", ChildKind, ForChild, ""},
		{"children:a", ChildrenKind, ForChild, ""},
		{"undo:charge", UndoKind, ForAttempts, ""},
		{"sleep:night", SleepKind, ForTime, ""},
		{"await:paid[7]", AwaitKind, ForSignal, "paid"},
		{"ask:ok[7]", AskKind, ForSignal, "ask:ok[7]"},
		{"now:begun", NowKind, ForNothing, ""},
		{"former:a", "", ForNothing, ""},
		{"other:do", "", ForNothing, ""},
		{"", "", ForNothing, ""},
	} {
		if k := OpKindOf(c.identity); k.Name != c.kind || k.Waits != c.waits {
			t.Errorf("OpKindOf(%q) = %+v, want the kind %q, which waits for %d", c.identity, *k, c.kind, c.waits)
		}
		if signal, ok := awaited(c.identity); signal != c.signal || ok != (c.signal != "") {
			t.Errorf("awaited(%q) = %q, %v, want %q", c.identity, signal, ok, c.signal)
		}
	}
}

// An item waits for what its map says, and its name ends with an index.
func TestKindsOfItems(t *testing.T) {
	t.Parallel()
	for i := range opKinds {
		k := &opKinds[i]
		if k.Items == "" {
			continue
		}
		if item := OpKindOf(k.Items); item.Name == "" || !item.IsItem || item.Waits != k.Waits {
			t.Errorf("the items of %+v are %+v", *k, *item)
		}
	}
}
