package retry

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/internal/testfile"
)

// TestEventsOfACall runs calls in virtual time and compares every event, as
// JSON, with the golden file.
func TestEventsOfACall(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		enc := json.NewEncoder(&out)
		write := WithObserver(func(e Event) {
			checkSchema(t, e)
			if err := enc.Encode(e); err != nil {
				t.Error(err)
			}
		})
		r := Must("exponential(1s..32s) attempts=3", WithName("api"), write)
		op, _ := failing(2, errFlaky)
		if err := r.Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		op, _ = failing(9, After(errFlaky, 200*time.Second))
		_ = r.Do(t.Context(), op)
		_, _ = Hedged(t.Context(), hedger(t, "fixed(0s) hedge=1s", write), func(context.Context) (int, error) {
			time.Sleep(3 * time.Second)
			return 1, nil
		})
	})
	testfile.Golden(t, "testdata/events.jsonl", out.Bytes())
}

func TestEventJSONRoundTrip(t *testing.T) {
	at := time.Date(2026, 2, 5, 3, 4, 5, 6, time.UTC)
	for k := AttemptStarted; k <= StormEnded; k++ {
		e := Event{Kind: k, Time: at, Name: "n", Call: 2, Attempt: 3, Attempts: Unlimited, Delay: 4, Elapsed: 5, Prev: 6, Err: errors.New("x"), Run: "r", Step: "s", Note: "n"}
		if k == Waiting {
			e.By, e.Until = ByServer, at.Add(time.Hour)
		}
		if k == GaveUp {
			e.Reason = StopBudget
		}
		checkSchema(t, e)
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		var back Event
		if err := json.Unmarshal(data, &back); err != nil || !reflect.DeepEqual(back, e) {
			t.Errorf("%s reads as %+v, %v, want %+v", data, back, err, e)
		}
	}
	for _, bad := range []string{`{}`, `{"kind":"exploded"}`, `{"kind":"gave-up","reason":"boredom"}`, `{"kind":"waiting","delay_by":"fate"}`, `[]`} {
		if err := json.Unmarshal([]byte(bad), new(Event)); err == nil {
			t.Errorf("%s was accepted", bad)
		}
	}
}

func TestTheSchemaKnowsEveryName(t *testing.T) {
	props := schema(t)
	for field, names := range map[string][]string{
		"kind": eventNames[1:], "reason": reasonNames[1:], "delay_by": sourceNames[:],
	} {
		if got := props[field].Enum; !slices.Equal(got, names) {
			t.Errorf("schema of %s: %v, want %v", field, got, names)
		}
	}
}

func TestBreakerEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []string
		b := breaker.Must(breaker.Config{ConsecutiveFailures: 1, WindowCalls: 9}, breaker.WithName("db"),
			breaker.WithObserver(BreakerEvents(func(e Event) {
				checkSchema(t, e)
				got = append(got, e.Name+" "+e.Kind.String())
			})))
		r := Must("fixed(0s)", WithBreaker(b))
		op, _ := failing(1, errFlaky)
		_ = r.Do(t.Context(), op)
		time.Sleep(b.OpenFor())
		if err := r.Do(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		if s := strings.Join(got, ", "); s != "db breaker-opened, db breaker-half-open, db breaker-closed" {
			t.Errorf("events: %s", s)
		}
	})
}

type property struct {
	Type    string   `json:"type"`
	Enum    []string `json:"enum"`
	Minimum *float64 `json:"minimum"`
}

func schema(t *testing.T) map[string]property {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "event.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var s struct{ Properties map[string]property }
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	return s.Properties
}

// checkSchema fails the test if the event's JSON does not match the schema.
func checkSchema(t *testing.T, e Event) {
	t.Helper()
	data, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	props := schema(t)
	for name, v := range fields {
		p, known := props[name]
		s, isText := v.(string)
		n, isNumber := v.(float64)
		switch {
		case !known:
			t.Errorf("%s: %q is not in the schema", data, name)
		case p.Type == "string" && !isText, p.Type == "integer" && (!isNumber || n != float64(int64(n))):
			t.Errorf("%s: %q is not of type %s", data, name, p.Type)
		case p.Enum != nil && !slices.Contains(p.Enum, s), p.Minimum != nil && n < *p.Minimum:
			t.Errorf("%s: %q has a value the schema forbids", data, name)
		}
	}
	if fields["kind"] == nil || fields["time"] == nil {
		t.Errorf("%s: kind or time is missing", data)
	}
}

func TestTroubleObserverSeesOnlyTrouble(t *testing.T) {
	t.Parallel()
	for _, chatty := range []bool{false, true} {
		var seen []string
		opts := []Option{WithTroubleObserver(func(e Event) { seen = append(seen, e.Kind.String()) })}
		all := 0
		if chatty {
			opts = append(opts, WithObserver(func(Event) { all++ }))
		}
		r := Must("fixed(0s) attempts=2", opts...)
		_ = r.Do(t.Context(), func(context.Context) error { return nil })
		if len(seen) != 0 || chatty != (all == 2) {
			t.Errorf("a call that succeeds at once: %v, and %d for who wants all", seen, all)
		}
		n := 0
		_ = r.Do(t.Context(), func(context.Context) error {
			if n++; n == 1 {
				return errors.New("x")
			}
			return nil
		})
		if want := []string{"attempt-failed", "waiting", "attempt-started", "succeeded"}; !slices.Equal(seen, want) {
			t.Errorf("a call that does not: %v, want %v", seen, want)
		}
	}
}

// A caller that has ids of its own finds them in the events; the runner counts the other calls.
func TestCallIDsOfTheCaller(t *testing.T) {
	t.Parallel()
	type key struct{}
	var seen []uint64
	r := Must("fixed(0s) attempts=2", WithTroubleObserver(func(e Event) { seen = append(seen, e.Call) }),
		WithCallID(func(ctx context.Context) uint64 {
			id, _ := ctx.Value(key{}).(uint64)
			return id
		}))
	for _, ctx := range []context.Context{context.WithValue(t.Context(), key{}, uint64(4711)), t.Context()} {
		_ = r.Do(ctx, func(context.Context) error { return Permanent(errors.New("x")) })
	}
	if want := []uint64{4711, 4711, 1, 1}; !slices.Equal(seen, want) {
		t.Errorf("the events have the calls %v, want %v", seen, want)
	}
	if _, err := New(Policy{}, WithCallID(nil)); err == nil {
		t.Error("WithCallID(nil) is accepted")
	}
}
