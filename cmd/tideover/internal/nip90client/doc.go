// Package nip90client is the customer's side of NIP-90: it makes requests and reads the
// answers to them.
//
// Events from relays are untrusted. An [Inbox] accepts only verified events of the provider
// that the request names, and each only once. An [Entry] is an event in a form for people and
// programs. A [Talk] decides which answer ends the request.
package nip90client
