package dvm_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

var morning = time.Date(2026, 11, 15, 8, 0, 0, 0, time.UTC)

func TestParseTimeouts(t *testing.T) {
	t.Parallel()
	tag := func(values ...string) nostr.Tags { return nostr.Tags{append(nostr.Tag{"timeout"}, values...)} }
	for _, c := range []struct {
		name    string
		tags    nostr.Tags
		want    time.Duration
		clamped bool
		err     string
	}{
		{name: "absent", want: 30 * time.Second},
		{name: "the shortest", tags: tag("1"), want: time.Second},
		{name: "the longest", tags: tag("600"), want: 10 * time.Minute},
		{name: "longer", tags: tag("601"), want: 10 * time.Minute, clamped: true},
		{name: "longer than any number", tags: tag(strings.Repeat("9", 40)), want: 10 * time.Minute, clamped: true},
		{name: "a leading zero", tags: tag("05"), err: `timeout "05": want whole seconds, 1 to 600`},
		{name: "two values", tags: tag("5", "10"), err: `timeout "5, 10": want whole seconds, 1 to 600`},
		{name: "a value and its unit", tags: tag("5", "seconds"), err: `timeout "5, seconds": want whole seconds, 1 to 600`},
		{name: "a value and an empty one", tags: tag("5", ""), err: `timeout "5, ": want whole seconds, 1 to 600`},
		{name: "zero", tags: tag("0"), err: `timeout "0": want whole seconds, 1 to 600`},
		{name: "zeros", tags: tag("000"), err: `timeout "000": want whole seconds, 1 to 600`},
		{name: "negative", tags: tag("-5"), err: `timeout "-5": want whole seconds, 1 to 600`},
		{name: "a sign", tags: tag("+5"), err: `timeout "+5": want whole seconds, 1 to 600`},
		{name: "a word", tags: tag("abc"), err: `timeout "abc": want whole seconds, 1 to 600`},
		{name: "a fraction", tags: tag("1.5"), err: `timeout "1.5": want whole seconds, 1 to 600`},
		{name: "an exponent", tags: tag("1e3"), err: `timeout "1e3": want whole seconds, 1 to 600`},
		{name: "a unit", tags: tag("30s"), err: `timeout "30s": want whole seconds, 1 to 600`},
		{name: "empty", tags: tag(""), err: `timeout "": want whole seconds, 1 to 600`},
		{name: "no value", tags: tag(), err: `timeout "": want whole seconds, 1 to 600`},
		{name: "a space", tags: tag(" 30"), err: `timeout " 30": want whole seconds, 1 to 600`},
		{name: "other digits", tags: tag("٣"), err: `timeout "٣": want whole seconds, 1 to 600`},
		{name: "twice", tags: append(tag("30"), tag("30")...), err: `timeout "30, 30": want it once`},
		{name: "a long text is cut", tags: tag(strings.Repeat("x", 1000)), err: `timeout "` + strings.Repeat("x", 40) + `…": want whole seconds, 1 to 600`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, err := dvm.Parse(newRequest(t, morning, tagged(c.tags...)), dvm.Rules{})
			if c.err != "" {
				var invalid *dvm.InvalidError
				if !errors.As(err, &invalid) || err.Error() != c.err || r == nil || r.ID == "" {
					t.Errorf("Parse = %v, %v; want a request and %s", r, err, c.err)
				}
				return
			}
			if err != nil || r.Timeout != c.want || r.Clamped != c.clamped {
				t.Errorf("Parse = %v, %v, %v; want %v, %v", r.Timeout, r.Clamped, err, c.want, c.clamped)
			}
		})
	}
}

func TestParseReadsEverything(t *testing.T) {
	t.Parallel()
	e := newRequest(t, morning, tagged(
		nostr.Tag{"i", "abc", "event", "wss://relay.example", "source"}, nostr.Tag{"param", "lang", "es", "en"}, nostr.Tag{"param", "x"},
		nostr.Tag{"output", "text/plain"}, nostr.Tag{"priority", "high"}, nostr.Tag{"relays", "wss://a", "wss://b"},
		nostr.Tag{"expiration", "1800000000"}, nostr.Tag{"timeout", "1200"}, nostr.Tag{}, nostr.Tag{"i"}))
	r, err := dvm.Parse(e, dvm.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	r.Relay = "wss://relay.example"
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	testfile.Golden(t, "testdata/request.json", string(text)+"\n")
	var again dvm.Request
	if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(&again, r) {
		t.Errorf("read back: %+v, %v; want %+v", again, err, r)
	}
	if got := r.Param("lang") + r.Param("x") + r.Param("y"); got != "es" {
		t.Errorf("Param = %q, want es", got)
	}
}

func TestARequestThatIsTooMuchIsRefused(t *testing.T) {
	t.Parallel()
	many := make([]nostr.Tag, 91)
	for i := range many {
		many[i] = nostr.Tag{"i", "x", "text"}
	}
	for name, c := range map[string]struct {
		change func(*nostr.Event)
		want   string
	}{
		"kind":      {func(e *nostr.Event) { e.Kind = 6000 }, `kind "6000": want 5000 to 5999`},
		"inputs":    {tagged(many...), `i "92": want at most 90 inputs`},
		"tags":      {tagged(nostr.Tag{"x", strings.Repeat("x", 1<<16)}), "want at most 65536 bytes"},
		"encrypted": {tagged(nostr.Tag{"encrypted"}), `encrypted "": want a request that is not encrypted`},
	} {
		r, err := dvm.Parse(newRequest(t, morning, c.change), dvm.Rules{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Parse: %v, want %s", name, err, c.want)
		}
		for _, e := range dvm.Refusal(r, dvm.CodeInvalid, err.Error(), morning) {
			signed(t, &e, ours) // fails for an event that is none
		}
	}
}

func TestALongRequestIsStoredWithoutItsEvent(t *testing.T) {
	t.Parallel()
	r, err := dvm.Parse(newRequest(t, morning, func(e *nostr.Event) { e.Content = strings.Repeat("x", 17<<10) }), dvm.Rules{})
	if err != nil {
		t.Fatal(err)
	}
	var again dvm.Request
	text, _ := json.Marshal(r)
	if err := json.Unmarshal(text, &again); err != nil || again.Event != nil || again.Task != r.Task {
		t.Errorf("read back with event %v, %v", again.Event, err)
	}
	h := &dvm.History{Outcome: &dvm.Outcome{State: dvm.Succeeded, At: morning}}
	if a, b := dvm.Answers(r, h), dvm.Answers(&again, h); !reflect.DeepEqual(a, b) || a[0].Tags.Find("request") != nil {
		t.Errorf("the answers are\n%v and, read back,\n%v", a, b)
	}
}

func TestRulesAreChecked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rules dvm.Rules
		want  string
	}{
		{dvm.Rules{}, ""},
		{dvm.Rules{DefaultTimeout: time.Second, MaxTimeout: time.Second}, ""},
		{dvm.Rules{DefaultTimeout: -1}, "default-timeout: -1ns is negative"},
		{dvm.Rules{MaxTimeout: time.Millisecond}, "max-timeout: 1ms is not a number of seconds"},
		{dvm.Rules{DefaultTimeout: time.Hour}, "default-timeout: 1h0m0s is above the max-timeout of 10m0s"},
	} {
		if err := c.rules.Validate(); c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%+v: %v, want %q", c.rules, err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(int64(1), 5900, "task", "timeout", "30", "i", "x")
	f.Add(int64(1<<53), 5000, "", "timeout", "", "expiration", "99999999999999")
	f.Fuzz(func(t *testing.T, at int64, kind int, content, n1, v1, n2, v2 string) {
		e := &nostr.Event{Kind: kind, CreatedAt: at, Content: content, Tags: nostr.Tags{{n1, v1}, {n2, v2}, {n1}, {}}}
		if e.Sign(customer) != nil {
			return
		}
		r, err := dvm.Parse(e, dvm.Rules{})
		if r == nil || r.ID != e.ID {
			t.Fatalf("Parse = %v", r)
		}
		if err == nil && (r.Timeout < time.Second || r.Timeout > 10*time.Minute) {
			t.Errorf("timeout %v", r.Timeout)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("it can't be stored: %v", err)
		}
		if kind < 5000 || kind > 5999 {
			return
		}
		for _, a := range dvm.Refusal(r, dvm.CodeInvalid, "no", morning) {
			if err := a.Sign(ours); err != nil {
				t.Errorf("the answer can't be signed: %v", err)
			}
		}
	})
}

// TestARequestWithALoneSurrogateIsServed parses a request that JavaScript has
// cut in the middle of a character. The job has U+FFFD there; the signed
// request stays unchanged when it is stored and when the result repeats it.
func TestARequestWithALoneSurrogateIsServed(t *testing.T) {
	t.Parallel()
	var e nostr.Event
	if err := json.Unmarshal([]byte(`{"id":"0","pubkey":"`+customer.PublicKey()+`","created_at":1700000000,"kind":5900,
		"tags":[["i","in\ud83d","text"],["param","a","\udc00"]],"content":"cut \ud83d","sig":""}`), &e); err != nil {
		t.Fatal(err)
	}
	hash := e.Hash()
	e.ID = hex.EncodeToString(hash[:])
	r, err := dvm.Parse(&e, dvm.Rules{})
	if err != nil || r.Task != "cut \uFFFD" || r.Inputs[0].Data != "in\uFFFD" || r.Param("a") != "\uFFFD" {
		t.Fatalf("Parse = %+v, %v", r, err)
	}
	stored, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var back dvm.Request
	if err := json.Unmarshal(stored, &back); err != nil || back.Event.CheckID() != nil {
		t.Fatalf("stored as %s: %v", stored, err)
	}
	for _, answer := range dvm.Answers(&back, &dvm.History{Outcome: &dvm.Outcome{State: dvm.Succeeded, At: morning, Content: "done"}}) {
		if err := answer.Sign(ours); err != nil {
			t.Errorf("Sign: %v", err)
		}
		var repeated nostr.Event
		if err := json.Unmarshal([]byte(answer.Tags.Find("request").Value()), &repeated); err != nil || repeated.CheckID() != nil {
			t.Errorf("the request in the result: %v, %v", err, repeated.CheckID())
		}
	}
}

func TestParseBids(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		price int64
		tags  nostr.Tags
		bid   int64 // -1 for none
		err   string
	}{
		{"free, no bid", 0, nil, -1, ""},
		{"free, with a bid", 0, nostr.Tags{{"bid", "5"}}, 5, ""},
		{"free, with an odd bid", 0, nostr.Tags{{"bid", "five"}}, -1, ""},
		{"the price", 5, nostr.Tags{{"bid", "5"}}, 5, ""},
		{"more", 5, nostr.Tags{{"bid", strings.Repeat("9", 40)}}, math.MaxInt64, ""},
		{"less", 5, nostr.Tags{{"bid", "4"}}, 4, "The price is 5 msat, and the bid was 4 msat; "},
		{"nothing", 5, nostr.Tags{{"bid", "0"}}, 0, "The price is 5 msat, and the bid was 0 msat; "},
		{"no bid", 5, nil, -1, "The price is 5 msat, and there was no bid; "},
		{"no value", 5, nostr.Tags{{"bid"}}, -1, "The price is 5 msat, and there was no bid; "},
		{"negative", 5, nostr.Tags{{"bid", "-9"}}, -1, "The price is 5 msat, and there was no bid; "},
		{"a fraction", 5, nostr.Tags{{"bid", "9.5"}}, -1, "The price is 5 msat, and there was no bid; "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, err := dvm.Parse(newRequest(t, morning, tagged(c.tags...)), dvm.Rules{Price: c.price})
			var low *dvm.PriceError
			if (err != nil) != (c.err != "") || err != nil && (!errors.As(err, &low) || !strings.HasPrefix(err.Error(), c.err)) {
				t.Fatalf("Parse = %v, want %q", err, c.err)
			}
			if got := r.Bid; (got == nil) != (c.bid < 0) || got != nil && *got != c.bid || r.Price != c.price {
				t.Errorf("the bid is %v and the price %d, want %d and %d", got, r.Price, c.bid, c.price)
			}
		})
	}
	if err := (dvm.Rules{Price: -1}).Validate(); err == nil {
		t.Error("a negative price is valid")
	}
}
