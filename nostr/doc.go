// Package nostr speaks NIP-01: events, keys, filters and relays.
//
// It is made for programs that must not lose what they have to say and must not
// believe what they are told. An event is what its id says only after [Event.Verify];
// a message from a relay is parsed within limits and never panics; what is published
// is published when a relay has said so.
//
// # What it is not for
//
// Reading the network as a person would: there are no profiles, no lists of
// followed people, no encryption. It has what a program needs that offers a service.
package nostr
