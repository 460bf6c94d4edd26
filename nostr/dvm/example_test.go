package dvm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
	"github.com/tideover/tideover/nostr/nostrtest"
)

// A provider needs a handler, a key and relays. Here the relay and the customer
// run in the same process.
func ExampleServe() {
	relay, err := nostrtest.Start("127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer relay.Close()

	upperHandler := func(_ context.Context, r *dvm.Request, _ func(dvm.Progress)) (dvm.Result, error) {
		return dvm.Result{Content: strings.ToUpper(r.Task)}, nil
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() {
		ended <- dvm.Serve(ctx, dvm.ServeConfig{Relays: []string{relay.URL()}, Key: ours, Handler: upperHandler})
	}()

	request := &nostr.Event{
		Kind: dvm.DefaultKind, CreatedAt: time.Now().Unix(), Content: "count the sheep",
		Tags: nostr.Tags{{"p", ours.PublicKey()}, {"timeout", "30"}},
	}
	if err := request.Sign(customer); err != nil {
		fmt.Println(err)
	}
	relay.Inject(request)
	_ = relay.Wait(ctx, func(stored []*nostr.Event) bool { return len(stored) == 3 })
	for _, e := range relay.Events()[1:] {
		fmt.Println(e.Kind, e.Tags.Find("status").Value(), e.Content)
	}
	stop()
	fmt.Println(<-ended)
	// Output:
	// 7000 processing Started
	// 6900 success COUNT THE SHEEP
	// <nil>
}

// The events of a job are a function of its history: a program that stores the
// history can be killed at any time.
func ExampleAnswers() {
	at := time.Date(2026, 11, 15, 8, 0, 0, 0, time.UTC)
	r := &dvm.Request{ID: "d0…", Customer: "c0…", Kind: 5900, Created: at, Timeout: 2 * time.Second}
	h := &dvm.History{MaxRetries: 3, Attempts: []dvm.Attempt{
		{Started: at, Ended: at.Add(2 * time.Second), TimedOut: true, Retry: true, Wait: time.Second},
		{Started: at.Add(3 * time.Second), Ended: at.Add(4 * time.Second)},
	}}
	h.Outcome = &dvm.Outcome{State: dvm.Succeeded, At: at.Add(4 * time.Second), Content: "42"}
	for _, e := range dvm.Answers(r, h) {
		fmt.Println(time.Unix(e.CreatedAt, 0).Sub(at), e.Kind, e.Content)
	}
	// Output:
	// 0s 7000 Started
	// 2s 7000 Retry 1/3 after error: Operation timed out after 2000ms
	// 4s 6900 42
}

// An invalid request is answered, and never run.
func ExampleParse() {
	e := &nostr.Event{Kind: 5900, Tags: nostr.Tags{{"timeout", "1.5"}}}
	_, err := dvm.Parse(e, dvm.Rules{})
	fmt.Println(err)
	var invalid *dvm.InvalidError
	fmt.Println(errors.As(err, &invalid))
	// Output:
	// timeout "1.5": want whole seconds, 1 to 600
	// true
}

// Relays store what is published, for all readers.
func ExampleSanitise() {
	fmt.Println(dvm.Sanitise("open /home/me/.netrc: permission denied\nGET https://me:pw@api.example.com/v1?key=1: 401"))
	// Output: open …: permission denied GET https://… 401
}

// A gate takes the time as an argument, so that it can be tested.
func ExampleGate() {
	gate, err := dvm.NewGate(dvm.GateConfig{Kinds: []int{5900}, Key: ours.PublicKey()})
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 11, 15, 8, 0, 0, 0, time.UTC)
	e := &nostr.Event{Kind: 5900, CreatedAt: now.Unix(), Tags: nostr.Tags{{"p", ours.PublicKey()}}}
	if err := e.Sign(customer); err != nil {
		fmt.Println(err)
	}
	fmt.Println(gate.Check(e, now), gate.Admit(e.PubKey, now))
	fmt.Println(gate.Check(e, now))
	fmt.Println(gate.Check(e, now.Add(time.Hour)))
	// Output:
	// accepted accepted
	// seen
	// stale
}
