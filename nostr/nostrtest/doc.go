// Package nostrtest has a relay for tests.
//
// It is a real one, over websockets on the loopback, that does what NIP-01 says: it
// verifies what is published, keeps it, answers, and hands it to the subscriptions
// that want it. And it does, on demand, what relays do on bad days: it refuses,
// forgets to answer, breaks links, falls silent, repeats itself and lies. See
// [Faults].
//
//	relay := nostrtest.New(t)
//	client := dial(relay.URL())
//	relay.Change(func(f *nostrtest.Faults) { f.DropBeforeOK = 1 })
//	client.Publish(event)
//	relay.Await(t, func(stored []*nostr.Event) bool { return len(stored) == 1 })
//
// # What it is not for
//
// Production: everything is in memory, every request looks at every event, and
// replaceable events are kept like all others.
package nostrtest
