// Package nostrtest has a relay for tests.
//
// It is a real one, over websockets on the loopback interface, that implements
// NIP-01: it verifies published events, stores them, answers, and delivers them
// to matching subscriptions. On demand it also fails like a real relay: it
// refuses, does not answer, breaks links, falls silent, repeats events and
// forges them. See [Faults].
//
//	relay := nostrtest.New(t)
//	client := dial(relay.URL())
//	relay.Change(func(f *nostrtest.Faults) { f.DropBeforeOK = 1 })
//	client.Publish(event)
//	relay.Await(t, func(stored []*nostr.Event) bool { return len(stored) == 1 })
//
// # What it is not for
//
// Production: everything is in memory, every request reads every event, and
// replaceable events of kinds below 30000 are stored like all others.
package nostrtest
