package nostr_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/tideover/tideover/nostr"
)

// A parsed message can be encoded, and is the same after parsing it again.

func FuzzParseRelayMessage(f *testing.F) { fuzzMessages(f, nostr.ParseRelayMessage, false) }

func FuzzParseClientMessage(f *testing.F) { fuzzMessages(f, nostr.ParseClientMessage, true) }

func fuzzMessages(f *testing.F, parse func([]byte) (*nostr.Message, error), client bool) {
	f.Helper()
	ours, theirs := messages(f)
	for _, m := range ours {
		f.Add(m.Append(nil, true))
	}
	for _, m := range theirs {
		f.Add(m.Append(nil, false))
	}
	f.Add([]byte(`["OK","",true]`))
	f.Add([]byte(`["EVENT","s",{"tags":[null]}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parse(data)
		if err != nil {
			return
		}
		_ = m.Prefix()
		if m.Event != nil {
			_ = m.Event.Verify()
		}
		text := m.Append(nil, client)
		if len(text) > nostr.MaxFrame { // the encoded form may be longer than the input
			return
		}
		back, err := parse(text)
		if err != nil || !reflect.DeepEqual(m, back) {
			t.Errorf("parse(%q): %+v\nwritten: %s\nread again: %+v, %v", data, m, text, back, err)
		}
	})
}

func FuzzParseEvent(f *testing.F) {
	f.Add(fixedEvent(f).AppendJSON(nil), "", int64(0), 0)
	f.Add([]byte(`{}`), "<&>\u2028\x00", int64(1), 65535)
	f.Fuzz(func(t *testing.T, data []byte, content string, at int64, kind int) {
		if e, err := nostr.ParseEvent(data); err == nil {
			checkUnchanged(t, e)
		}
		e := &nostr.Event{Content: content, CreatedAt: at, Kind: kind, Tags: nostr.Tags{{"t", content}}}
		if err := e.Sign(testKey(t, 1)); err == nil {
			checkUnchanged(t, e)
		}
	})
}

// checkUnchanged checks that a verified event survives encoding and parsing.
func checkUnchanged(t *testing.T, e *nostr.Event) {
	t.Helper()
	text := e.AppendJSON(nil)
	if len(text) > nostr.MaxFrame {
		return
	}
	back, err := nostr.ParseEvent(text)
	if err != nil || !reflect.DeepEqual(e, back) {
		t.Errorf("%+v\nwritten: %s\nread again: %+v, %v", e, text, back, err)
	}
}

func FuzzFilter(f *testing.F) {
	f.Add([]byte(`{"ids":["a"],"authors":["b"],"kinds":[1],"#e":["x"],"since":1,"until":2,"limit":3}`))
	f.Add([]byte(`{"#p":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var filter, back nostr.Filter
		if json.Unmarshal(data, &filter) != nil {
			return
		}
		_ = filter.Matches(&nostr.Event{})
		text, err := filter.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &back); err != nil || !reflect.DeepEqual(filter, back) {
			t.Errorf("%s: %+v\nwritten: %s\nread again: %+v, %v", data, filter, text, back, err)
		}
	})
}
