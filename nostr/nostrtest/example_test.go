package nostrtest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/coder/websocket"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

// A publisher whose link breaks before the answer does not know whether its
// event arrived. It publishes the event again, and the relay answers that it
// has it.
func ExampleRelay() {
	relay, err := nostrtest.Start("127.0.0.1:0") // in a test: nostrtest.New(t)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer relay.Close()
	relay.Change(func(f *nostrtest.Faults) { f.DropBeforeOK = 1 })

	key, _ := nostr.GenerateKey()
	event := nostr.Event{Kind: 1, CreatedAt: time.Now().Unix(), Content: "hello"}
	_ = event.Sign(key)
	message := nostr.Message{Type: nostr.TypeEvent, Event: &event}

	for range 2 {
		answer, err := request(relay.URL(), message.Append(nil, true))
		if err != nil {
			fmt.Println("no answer, stored:", len(relay.Events()))
			continue
		}
		fmt.Println(answer.OK, answer.Prefix())
	}
	// Output:
	// no answer, stored: 1
	// true duplicate
}

// request sends a message on a new link and returns the answer.
func request(url string, message []byte) (*nostr.Message, error) {
	ctx := context.Background()
	conn, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return nil, err
	}
	defer conn.CloseNow()
	if err := conn.Write(ctx, websocket.MessageText, message); err != nil {
		return nil, err
	}
	_, answer, err := conn.Read(ctx)
	if err != nil {
		return nil, err
	}
	return nostr.ParseRelayMessage(answer)
}
