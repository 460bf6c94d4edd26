package nostr_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/nostr"
)

// fixedEvent is the same in every run.
func fixedEvent(t testing.TB) *nostr.Event {
	t.Helper()
	e := &nostr.Event{Kind: 1, CreatedAt: 1_800_000_000, Tags: nostr.Tags{{"t", "<&>"}}, Content: "line\n\u2028"}
	if err := e.Sign(testKey(t, 1)); err != nil {
		t.Fatal(err)
	}
	return e
}

func messages(t testing.TB) (client, relay []nostr.Message) {
	t.Helper()
	e := fixedEvent(t)
	client = []nostr.Message{
		{Type: nostr.TypeEvent, Event: e},
		{Type: nostr.TypeAuth, Event: e},
		{Type: nostr.TypeReq, Sub: "s", Filters: []nostr.Filter{{Kinds: []int{1}}, {Since: 5}}},
		{Type: nostr.TypeReq, Sub: "\"\\"},
		{Type: nostr.TypeClose, Sub: "s"},
	}
	relay = []nostr.Message{
		{Type: nostr.TypeEvent, Sub: "s", Event: e},
		{Type: nostr.TypeOK, ID: e.ID, OK: true, Text: ""},
		{Type: nostr.TypeOK, ID: e.ID, Text: "rate-limited: slow <down>"},
		{Type: nostr.TypeEOSE, Sub: "s"},
		{Type: nostr.TypeClosed, Sub: "s", Text: "error: \x1b"},
		{Type: nostr.TypeNotice, Text: "hello"},
		{Type: nostr.TypeAuth, Text: "challenge"},
	}
	return client, relay
}

func TestMessagesAreWrittenAndRead(t *testing.T) {
	t.Parallel()
	var text []byte
	client, relay := messages(t)
	for _, side := range []struct {
		client bool
		list   []nostr.Message
		parse  func([]byte) (*nostr.Message, error)
	}{{true, client, nostr.ParseClientMessage}, {false, relay, nostr.ParseRelayMessage}} {
		for _, m := range side.list {
			frame := m.Append(nil, side.client)
			text = append(append(text, frame...), '\n')
			back, err := side.parse(frame)
			if err != nil || string(back.Append(nil, side.client)) != string(frame) {
				t.Errorf("parse(%s): %+v, %v", frame, back, err)
			}
		}
	}
	testfile.Golden(t, "testdata/messages.golden", text)
}

func TestAnswersWithoutATextAreTaken(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]nostr.Message{
		`["OK","x",true]`:                  {Type: nostr.TypeOK, ID: "x", OK: true},
		`["OK","x",false,"blocked: a",1]`:  {Type: nostr.TypeOK, ID: "x", Text: "blocked: a"},
		`["CLOSED","s"]`:                   {Type: nostr.TypeClosed, Sub: "s"},
		` [ "CLOSED" , "s" , "error: b" ]`: {Type: nostr.TypeClosed, Sub: "s", Text: "error: b"},
	} {
		got, err := nostr.ParseRelayMessage([]byte(text))
		if err != nil || got.Type != want.Type || got.ID != want.ID || got.OK != want.OK || got.Sub != want.Sub || got.Text != want.Text {
			t.Errorf("ParseRelayMessage(%s): %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestMessagesThatAreNot(t *testing.T) {
	t.Parallel()
	event := string(fixedEvent(t).AppendJSON(nil))
	for _, text := range []string{
		``, `null`, `1`, `{}`, `[]`, `[1]`, `[null]`, `["X"]`, `["event"]`, `["EVENT"]`, `["EVENT",null]`, `["EVENT",1]`, `["EVENT","s"]`,
		`["EVENT","s",null]`, `["EVENT","s",{}]`, `["EVENT","s",{"id":1}]`, `["OK"]`, `["OK","x"]`, `["OK","x","true"]`, `["OK","x",null,""]`,
		`["OK","x",true,null]`, `["OK","x",true,1]`, `["EOSE"]`, `["EOSE",null]`, `["CLOSED"]`, `["CLOSED","s",{}]`, `["NOTICE"]`, `["AUTH"]`,
		`["REQ"]`, `["REQ",1]`, `["REQ","s",null]`, `["REQ","s",[]]`, `["REQ","s",{"x":1}]`, `["CLOSE"]`, "[\"NOTICE\",\"\xff\"]",
		`["NOTICE","` + strings.Repeat("x", nostr.MaxFrame) + `"]`, strings.Repeat("[", 20000), `["EVENT","s",` + event,
	} {
		for name, parse := range map[string]func([]byte) (*nostr.Message, error){
			"ParseRelayMessage": nostr.ParseRelayMessage, "ParseClientMessage": nostr.ParseClientMessage,
		} {
			if m, err := parse([]byte(text)); !errors.Is(err, nostr.ErrMessage) {
				t.Errorf("%s(%.60q): %+v, %v, want ErrMessage", name, text, m, err)
			}
		}
	}
}

func TestPrefixIsTheWordForPrograms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "blocked": "", "blocked:": "blocked", "rate-limited: slow: down": "rate-limited", "I say: no": "", ": x": "",
	} {
		m := nostr.Message{Text: text}
		if got := m.Prefix(); got != want {
			t.Errorf("Prefix of %q: %q, want %q", text, got, want)
		}
	}
}
