package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal/memlog"
)

// TestAStartOfAnotherWorkflowIsRefused starts a workflow that has the name of a
// registered one: nothing is stored, and the registered one stays.
func TestAStartOfAnotherWorkflowIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		does := func(out string) func(context.Context, int) (string, error) {
			return func(context.Context, int) (string, error) { return out, nil }
		}
		registered, other := one(t, does("registered")), one(t, does("other"))
		parent := must(NewWorkflow("parent", Step("do", does("parent")), OnEnd(other)))
		e := opened(t, Config{Workflows: []*Workflow{registered}})
		for _, w := range []*Workflow{other, parent} {
			_, err := e.Start(t.Context(), w, 1, Key("k"))
			if !errors.Is(err, ErrRegistered) || !strings.Contains(err.Error(), "one: another workflow") || !strings.Contains(err.Error(), "Engine.Register") {
				t.Errorf("Start(%s) = %v", w.Name(), err)
			}
		}
		if page := must(e.List(t.Context(), Filter{Fresh: true})); len(page.Runs) != 0 {
			t.Errorf("%d runs after starts that were refused", len(page.Runs))
		}
		if w, _ := e.Workflow("one"); w != registered {
			t.Error("the registered workflow was replaced")
		}
		if i := waited(t, started(t, e, registered, 1, Key("k"))); string(i.Output) != `"registered"` {
			t.Errorf("output %s", i.Output)
		}
		// Of a program that replaces workflows, the one that is registered is started.
		if i := waited(t, must(e.StartRegistered(t.Context(), other, 1))); string(i.Output) != `"registered"` {
			t.Errorf("output %s", i.Output)
		}
		if err := e.Register(other); err != nil {
			t.Fatal(err)
		}
		if i := waited(t, started(t, e, parent, 1)); string(i.Output) != `"parent"` {
			t.Errorf("output %s", i.Output)
		}
		if _, err := e.Start(t.Context(), nil, 1); err == nil {
			t.Error("a start of no workflow is no error")
		}
	})
}

// TestAnExistingKeySaysWhetherTheInputDiffers starts runs again while they wait, after
// they have ended, from memory, from a snapshot and from the view.
func TestAnExistingKeySaysWhetherTheInputDiffers(t *testing.T) {
	t.Parallel()
	type input struct {
		N    int    `json:"n"`
		Text string `json:"text"`
	}
	w := one(t, func(context.Context, input) (int, error) { return 1, nil })
	large := strings.Repeat("x", 20<<10)
	check := func(t *testing.T, e *Engine, ids map[string]string, key, text string) {
		t.Helper()
		raw := func(s string) json.RawMessage { return json.RawMessage(s) }
		for _, again := range []struct {
			input   any
			differs bool
		}{
			{input{1, text}, false},
			{raw(fmt.Sprintf(`{"text": %q, "n": 1}`, text)), false}, // another order, and spaces
			{raw(fmt.Sprintf(`{"n":1,"text":%q,"more":null}`, text)), true},
			{input{2, text}, true},
			{input{1, text + "y"}, true},
			{raw(fmt.Sprintf(`{"n":1,"text":%q}`, text)), false},
			{raw("null"), true},
		} {
			s := started(t, e, w, again.input, Key(key))
			if s.ID != ids[key] || !s.Existing || s.InputDiffers != again.differs {
				t.Errorf("%s again with %.40v: %+v, want %s, input differs: %v", key, again.input, s, ids[key], again.differs)
			}
		}
	}
	keys := map[string]string{"small": "a", "large": large, "later": "b", "later large": large}
	start := func(t *testing.T, e *Engine) (ids map[string]string) {
		t.Helper()
		ids = map[string]string{}
		for key, text := range keys {
			var opts []StartOption
			if strings.HasPrefix(key, "later") {
				opts = append(opts, In(time.Hour))
			}
			s := started(t, e, w, input{1, text}, append(opts, Key(key))...)
			if s.Existing || s.InputDiffers {
				t.Errorf("the first start: %+v", s)
			}
			if ids[key] = s.ID; opts == nil {
				waited(t, s)
			}
		}
		return ids
	}
	t.Run("alone", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			store := new(memlog.Store)
			cfg := Config{Workflows: []*Workflow{w}, Dir: "", Logger: quiet(), snapshotAfter: 1}
			cfg.Log = store.Open()
			e := must(Open(t.Context(), cfg))
			ids := start(t, e)
			time.Sleep(time.Minute) // those that are later are cold by now
			for key, text := range keys {
				check(t, e, ids, key, text)
			}
			if err := e.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			cfg.Log = store.Open()
			e = must(Open(t.Context(), cfg))
			defer e.Close(t.Context())
			for key, text := range keys {
				check(t, e, ids, key, text)
			}
		})
	})
	t.Run("in a folder", func(t *testing.T) { // from which runs that have ended are read
		t.Parallel()
		e := opened(t, Config{Dir: t.TempDir(), Workflows: []*Workflow{w}})
		ids := start(t, e)
		must(e.List(t.Context(), Filter{Fresh: true}))
		for key, text := range keys {
			check(t, e, ids, key, text)
		}
	})
	t.Run("in a cluster", func(t *testing.T) {
		t.Parallel()
		together(t, func(t *testing.T, s *memlog.Store) {
			a := joined(t, s, "a", Config{Workflows: []*Workflow{w}})
			b := joined(t, s, "b", Config{Workflows: []*Workflow{w}})
			settled(t, a, b)
			ids := start(t, a.Engine)
			for key, text := range keys {
				check(t, a.Engine, ids, key, text)
				check(t, b.Engine, ids, key, text)
			}
		})
	})
}

func TestSameJSON(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		a, b string
		want bool
	}{
		{"", "", true}, {"", "null", true}, {"1", "1 ", true}, {"1", "2", false}, {`"a"`, `"\u0061"`, true},
		{`{"a":1,"b":[1,2]}`, `{"b":[1,2],"a":1}`, true}, {`[1,2]`, `[2,1]`, false},
		{"12345678901234567890", "12345678901234567891", false}, {"null", "0", false}, {"{", "[", false},
	} {
		if got := workflow.SameJSON([]byte(test.a), bytes.Clone([]byte(test.b))); got != test.want {
			t.Errorf("workflow.SameJSON(%s, %s) = %v", test.a, test.b, got)
		}
	}
}
