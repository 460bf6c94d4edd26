// Package nip90client is the customer's half of NIP-90: it writes requests, reads
// what is answered, and knows when an answer is the last one.
//
// What comes over relays was written by anybody. An [Inbox] takes only events that
// are verified and by the one who was asked, each once; an [Entry] is what is left
// of one for people and programs; a [Talk] decides what the end is.
package nip90client
