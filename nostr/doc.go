// Package nostr implements NIP-01: events, keys, filters and a client for
// relays.
//
// It is made for programs that must deliver their events reliably and must not
// trust what they receive. An event is authentic only after [Event.Verify]; a
// message from a relay is parsed within limits and never panics; an event
// counts as published only when a relay has acknowledged it.
//
// # What it is not for
//
// It is no client for people: there are no profiles, no contact lists, no
// encryption. It has what a program needs that offers a service.
package nostr
