// Package nip90client is the customer's half of NIP-90: it writes requests, reads
// the answers, and knows which answer is the last one.
//
// Events from relays are untrusted. An [Inbox] accepts only verified events of the provider
// that the request names, and each only once. An [Entry] is an event in a form for people and
// programs. A [Talk] decides which answer ends the request.
package nip90client
