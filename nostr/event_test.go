package nostr_test

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tideover/tideover/nostr"
)

// vectors returns events whose ids were computed by another implementation, in
// another language. Do not update them with our results.
func vectors(t testing.TB) (list []vector) {
	t.Helper()
	data, err := os.ReadFile("testdata/ids.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

type vector struct {
	Name      string     `json:"name"`
	ID        string     `json:"id"`
	PubKey    string     `json:"pubkey"`
	CreatedAt int64      `json:"created_at"`
	Kind      int        `json:"kind"`
	Tags      nostr.Tags `json:"tags"`
	Content   string     `json:"content"`
}

func (v vector) event() *nostr.Event {
	return &nostr.Event{
		ID: v.ID, PubKey: v.PubKey, CreatedAt: v.CreatedAt, Kind: v.Kind, Tags: v.Tags, Content: v.Content,
		Sig: strings.Repeat("0", 128),
	}
}

func TestTheIDIsThatOfOtherImplementations(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		e := v.event()
		if got := fmt.Sprintf("%x", e.Hash()); got != v.ID {
			t.Errorf("%s: id %s, want %s", v.Name, got, v.ID)
		}
		if err := errors.Join(e.CheckShape(), e.CheckID()); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
		var back nostr.Event
		if err := json.Unmarshal(e.AppendJSON(nil), &back); err != nil || back.CheckID() != nil {
			t.Errorf("%s: after JSON: %v, %v", v.Name, err, back.CheckID())
		}
	}
}

// An event in the form of encoding/json is the same event.
func TestEscapesOfTheSenderDoNotMatter(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		fields := map[string]any{
			"id": v.ID, "pubkey": v.PubKey, "created_at": v.CreatedAt, "kind": v.Kind, "tags": v.Tags, "content": v.Content,
			"sig": strings.Repeat("0", 128), "more": []int{1},
		}
		text, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		var e nostr.Event
		if err := json.Unmarshal(text, &e); err != nil || e.CheckID() != nil {
			t.Errorf("%s: %v, %v, want the same id", v.Name, err, e.CheckID())
		}
	}
}

// The official vectors of BIP-340, those whose message has the size of an id.
func TestSignaturesAreThoseOfBIP340(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/bip340.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) < 10 {
		t.Fatalf("%d vectors, %v", len(rows), err)
	}
	for i, row := range rows[1:] {
		e := nostr.Event{PubKey: row[0], ID: row[1], Sig: row[2]}
		if got, want := e.CheckSignature(), row[3] == "true"; (got == nil) != want || got != nil && !errors.Is(got, nostr.ErrSignature) {
			t.Errorf("vector %d: %v, want valid %t", i, got, want)
		}
	}
}

func TestSignedEventsVerifyAndStayTheSame(t *testing.T) {
	t.Parallel()
	for _, v := range vectors(t) {
		a, b := v.event(), v.event()
		if err := errors.Join(a.Sign(testKey(t, 1)), b.Sign(testKey(t, 1))); err != nil {
			t.Errorf("%s: Sign: %v", v.Name, err)
			continue
		}
		if a.Sig != b.Sig || a.ID != b.ID {
			t.Errorf("%s: signed twice it is another event", v.Name)
		}
		if err := a.Verify(); err != nil {
			t.Errorf("%s: Verify: %v", v.Name, err)
		}
	}
	if err := new(nostr.Event).Sign(nostr.SecretKey{}); err == nil {
		t.Error("Sign without a key: nil, want an error")
	}
}

func TestVerifyFindsEveryChange(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*nostr.Event)
		want   error
	}{
		"content":                  {func(e *nostr.Event) { e.Content += "." }, nostr.ErrID},
		"kind":                     {func(e *nostr.Event) { e.Kind++ }, nostr.ErrID},
		"time":                     {func(e *nostr.Event) { e.CreatedAt++ }, nostr.ErrID},
		"tags":                     {func(e *nostr.Event) { e.Tags = nostr.Tags{{"p", "x"}} }, nostr.ErrID},
		"author":                   {func(e *nostr.Event) { e.PubKey = testKey(t, 2).PublicKey() }, nostr.ErrID},
		"signature":                {func(e *nostr.Event) { e.Sig = newEvent(t, "other").Sig }, nostr.ErrSignature},
		"id in upper case":         {func(e *nostr.Event) { e.ID = strings.ToUpper(e.ID) }, nostr.ErrShape},
		"short id":                 {func(e *nostr.Event) { e.ID = e.ID[1:] }, nostr.ErrShape},
		"quote in the author":      {func(e *nostr.Event) { e.PubKey = `"` + e.PubKey[1:] }, nostr.ErrShape},
		"short signature":          {func(e *nostr.Event) { e.Sig = "" }, nostr.ErrShape},
		"too many tags":            {func(e *nostr.Event) { e.Tags = make(nostr.Tags, nostr.MaxTags+1) }, nostr.ErrShape},
		"too much content":         {func(e *nostr.Event) { e.Content = strings.Repeat("x", nostr.MaxContent+1) }, nostr.ErrShape},
		"content that is not text": {func(e *nostr.Event) { e.Content = "\xff" }, nostr.ErrShape},
		"a tag that is not text":   {func(e *nostr.Event) { e.Tags = nostr.Tags{{"p", "\xff"}} }, nostr.ErrShape},
		"negative time":            {func(e *nostr.Event) { e.CreatedAt = -1 }, nostr.ErrShape},
		"kind out of range":        {func(e *nostr.Event) { e.Kind = nostr.MaxKind + 1 }, nostr.ErrShape},
	} {
		e := newEvent(t, "hello")
		test.change(e)
		if got := e.Verify(); !errors.Is(got, test.want) {
			t.Errorf("another %s: %v, want %v", name, got, test.want)
		}
	}
}

func TestEventsThatAreNot(t *testing.T) {
	t.Parallel()
	good := string(newEvent(t, "x").AppendJSON(nil))
	if _, err := nostr.ParseEvent([]byte(" " + good + "\n")); err != nil {
		t.Fatalf("ParseEvent: %v", err)
	}
	for _, text := range []string{
		``, `null`, `[]`, `{}`, `"x"`, good + good, strings.Repeat(" ", nostr.MaxFrame) + good,
		strings.Replace(good, `"tags":[]`, `"tags":null`, 1),
		strings.Replace(good, `"tags":[]`, `"tags":[null]`, 1),
		strings.Replace(good, `"tags":[]`, `"tags":[[1]]`, 1),
		strings.Replace(good, `"kind":7000`, `"kind":7000.5`, 1),
		strings.Replace(good, `"kind":7000`, `"kind":"7000"`, 1),
		strings.Replace(good, `"content":"x"`, `"content":null`, 1),
		strings.Replace(good, `"content":"x",`, ``, 1),
		strings.Replace(good, `"created_at":`, `"created_at":99999999999999`, 1),
	} {
		if e, err := nostr.ParseEvent([]byte(text)); err == nil {
			t.Errorf("ParseEvent(%.60q): %+v, want an error", text, e)
		}
	}
}

func TestTagsAreFoundByName(t *testing.T) {
	t.Parallel()
	ts := nostr.Tags{{}, {"e"}, {"p", "1"}, {"p", "2", "hint"}}
	if got := ts.Find("p").Value(); got != "1" {
		t.Errorf("Find(p): %q, want 1", got)
	}
	if got := ts.Find("x"); got != nil || got.Value() != "" || got.Name() != "" {
		t.Errorf("Find(x): %v, want nil", got)
	}
	if got := ts.All("p"); len(got) != 2 || got[1].At(2) != "hint" {
		t.Errorf("All(p): %v, want both", got)
	}
	if !ts.Has("p", "2") || ts.Has("p", "3") || ts.Has("e", "") {
		t.Error("Has: want it for p=2, not for p=3, nor for a tag without a value")
	}
}

func ExampleEvent_Verify() {
	key, err := nostr.GenerateKey()
	if err != nil {
		fmt.Println(err)
		return
	}
	e := &nostr.Event{Kind: 1, CreatedAt: 1_800_000_000, Content: "hello"}
	fmt.Println(e.Sign(key), e.Verify())
	e.Content = "goodbye"
	fmt.Println(e.Verify())
	// Output:
	// <nil> <nil>
	// the id does not match the event
}
