// Package dvm offers work over Nostr: it takes requests of NIP-90, has them done
// under a retry policy, tells the customer how it goes, and always says how it
// ended.
//
// It has layers that can be used alone. [Parse] reads a request and [Answers] writes
// everything that is published about a job, from what happened to it: both are pure
// functions, and the same history makes the same events, also after a crash. [Gate]
// decides what is accepted. [Provider] takes requests in from relays and hands them
// to something that does them, [Jobs]. [Runner] is such a thing for Go programs: it
// runs a handler in this process. [Serve] is all of them together.
//
// # What a customer sees
//
// Feedback, of kind 7000, when the work starts, before each retry, as it makes
// progress, and when it has failed; then one result, of the request's kind + 1000,
// with the status success, partial or error. A job that is cancelled has feedback
// and no result. There is no feedback for success: the result is that.
//
// # Before you offer something
//
// NIP-90 is marked "unrecommended" upstream, and [DefaultKind] is registered for
// something else too. The kind is therefore yours to choose, and a provider answers
// only requests that name its key, unless it is told otherwise.
//
// # What it is not for
//
// Money: there are no invoices, and no payment is made or checked. A kind may have a
// price (see [Rules]), which results and refusals name. Encrypted requests are refused,
// because the relays could read the answers.
package dvm
