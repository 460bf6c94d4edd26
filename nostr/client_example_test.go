package nostr_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

// A published event arrives, although the link breaks before the relay can
// acknowledge it.
func ExampleClient() {
	relay, err := nostrtest.Start("127.0.0.1:0", nostrtest.WithFaults(nostrtest.Faults{DropBeforeOK: 1}))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer relay.Close()
	key, _ := nostr.GenerateKey()

	got := make(chan string, 10)
	client, err := nostr.NewClient(nostr.ClientConfig{
		Relays: []string{relay.URL()},
		Key:    key,
		Handle: func(_ string, e *nostr.Event) error {
			if err := e.CheckSignature(); err != nil {
				return err // the relay should not have sent it
			}
			got <- e.Content
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- client.Run(ctx) }()

	client.Subscribe("notes", time.Now().Add(-time.Minute), nostr.Filter{Authors: []string{key.PublicKey()}})
	e := &nostr.Event{Kind: 1, CreatedAt: time.Now().Unix(), Content: "hello"}
	if err := e.Sign(key); err != nil {
		fmt.Println(err)
	}
	fmt.Println(client.Publish(nostr.Result, e).Wait(ctx))
	fmt.Println(<-got)

	events, err := client.Fetch(ctx, nostr.Filter{IDs: []string{e.ID}})
	fmt.Println(len(events), err)
	cancel()
	fmt.Println(<-ended)
	// Output:
	// <nil>
	// hello
	// 1 <nil>
	// <nil>
}
