package nostr_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/btcsuite/btcd/btcec/v2"
	"github.com/btcsuite/btcd/btcec/v2/schnorr"

	"github.com/tideover/tideover/nostr"
)

// TestTheIDOfALoneSurrogate parses events whose text has a lone surrogate. The
// ids are those that nostr-tools computes, with JSON.stringify, TextEncoder and
// sha256 in Node.js.
func TestTheIDOfALoneSurrogate(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("testdata/surrogates.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []struct {
		Name  string
		Event json.RawMessage
	}
	if err := json.Unmarshal(data, &list); err != nil || len(list) == 0 {
		t.Fatalf("%d vectors, %v", len(list), err)
	}
	for _, v := range list {
		var e, back nostr.Event
		if err := json.Unmarshal(v.Event, &e); err != nil {
			t.Errorf("%s: %v", v.Name, err)
			continue
		}
		if err := errors.Join(e.CheckShape(), e.CheckID()); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
		text := e.AppendJSON(nil)
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(e, back) || !utf8.Valid(text) {
			t.Errorf("%s: written as %s, read again as %+v, %v", v.Name, text, back, err)
		}
	}
}

// signAsIs signs an event with lone surrogates, as JavaScript does.
func signAsIs(t *testing.T, e *nostr.Event) {
	t.Helper()
	key, err := btcec.NewPrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	e.PubKey = hex.EncodeToString(schnorr.SerializePubKey(key.PubKey()))
	hash := e.Hash()
	sig, err := schnorr.Sign(key, hash[:])
	if err != nil {
		t.Fatal(err)
	}
	e.ID, e.Sig = hex.EncodeToString(hash[:]), hex.EncodeToString(sig.Serialize())
}

func TestALoneSurrogateIsReadAndNotWritten(t *testing.T) {
	t.Parallel()
	const half = "\xed\xa0\x80" // of a pair, as an event holds it
	e := &nostr.Event{Kind: 5900, Content: "cut " + half, Tags: nostr.Tags{{"i", half + "x"}}}
	if err := e.Sign(testKey(t, 1)); !errors.Is(err, nostr.ErrShape) || !strings.Contains(err.Error(), "surrogate") {
		t.Errorf("Sign = %v, want a refusal that names it", err)
	}
	signAsIs(t, e)
	got, err := nostr.ParseEvent(e.AppendJSON(nil))
	if err != nil || !reflect.DeepEqual(got, e) {
		t.Fatalf("ParseEvent = %+v, %v, want %+v", got, err, e)
	}
	if text := got.ToValidUTF8(); text.Content != "cut \uFFFD" || text.Tags[0][1] != "\uFFFDx" || text.ID != e.ID {
		t.Errorf("ToValidUTF8 = %+v", text)
	}
	if got.Content != "cut "+half || got.Tags[0][1] != half+"x" {
		t.Errorf("ToValidUTF8 has changed the event: %+v", got)
	}
	plain := newEvent(t, "caf\u00e9 \U0001F600 \uFFFD")
	if plain.ToValidUTF8() != plain {
		t.Error("ToValidUTF8 of an event that is UTF-8 is another event")
	}
	for _, content := range []string{"\xed\xa0", "\xed\xa0\x80\xed\xb0\x80", "\xed\xa0\x80\xff", "\xed"} {
		bad := &nostr.Event{Kind: 1, Content: content}
		signAsIs(t, bad)
		if err := bad.CheckShape(); !errors.Is(err, nostr.ErrShape) {
			t.Errorf("CheckShape of the content %q = %v, want a refusal", content, err)
		}
	}
}

// TestManyLoneSurrogates parses the longest event that consists of lone
// surrogates.
func TestManyLoneSurrogates(t *testing.T) {
	t.Parallel()
	e := &nostr.Event{Kind: 1, Content: strings.Repeat("\xed\xb0\x80", nostr.MaxContent/3)}
	signAsIs(t, e)
	if got, err := nostr.ParseEvent(e.AppendJSON(nil)); err != nil || got.Content != e.Content {
		t.Errorf("ParseEvent: %v", err)
	}
}
