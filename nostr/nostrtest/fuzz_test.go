package nostrtest

import (
	"testing"

	"github.com/tideover/tideover/nostr"
)

// FuzzReceive sends any two frames of a client: the relay answers only with
// valid messages, stores only signed events, and breaks no link.
func FuzzReceive(f *testing.F) {
	signed := nostr.Event{Kind: 1, CreatedAt: 1, Tags: nostr.Tags{{"e", "x"}, {}}, Content: "\u2028<\x01"}
	key, err := nostr.ParseSecretKey("0000000000000000000000000000000000000000000000000000000000000001")
	if err != nil {
		f.Fatal(err)
	}
	if err := signed.Sign(key); err != nil {
		f.Fatal(err)
	}
	for _, first := range []string{`["REQ","s",{}]`, `["REQ","s",{"kinds":[1],"#e":["x"],"limit":-1}]`, `["CLOSE","s"]`, `[`, ``} {
		f.Add([]byte(first), []byte(`["EVENT",`+string(signed.AppendJSON(nil))+`]`))
		f.Add([]byte(first), []byte(`["AUTH",`+string(signed.AppendJSON(nil))+`]`))
		f.Add([]byte(`["EVENT",`+string(signed.AppendJSON(nil))+`]`), []byte(first))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		core := newCore(newOptions([]Option{KeepEvents(10), KeepReceived(10)}))
		s := core.addSession()
		if !core.receive(s, first) || !core.receive(s, second) {
			t.Error("the link is broken")
		}
		for _, text := range drain(s) {
			if _, err := nostr.ParseRelayMessage([]byte(text)); err != nil {
				t.Errorf("answered %s: %v", text, err)
			}
		}
		for _, e := range core.store.events {
			if err := e.Verify(); err != nil {
				t.Errorf("kept %s: %v", e.AppendJSON(nil), err)
			}
		}
	})
}
