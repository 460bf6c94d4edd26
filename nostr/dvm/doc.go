// Package dvm offers work over Nostr (NIP-90): it accepts requests, runs them
// under a retry policy, reports progress to the customer, and always publishes
// how a job ended.
//
// Its layers can be used alone. [Parse] parses a request, and [Answers] returns
// all events that are published about a job, computed from its history. Both
// are pure functions: the same history gives the same events, also after a
// crash. [Gate] decides which requests are accepted. [Provider] receives
// requests from relays and passes them to an implementation of [Jobs]. [Runner]
// is one for Go programs: it runs a handler in this process. [Serve] combines
// all of them.
//
// # What a customer sees
//
// Feedback, of kind 7000, when the work starts, before each retry, on progress,
// and when the job has failed; then one result, of the request's kind + 1000,
// with the status success, partial or error. A job that is cancelled has
// feedback and no result. There is no feedback for success: the result is
// enough.
//
// # Before you offer something
//
// NIP-90 is marked "unrecommended" upstream, and [DefaultKind] is registered
// for another purpose too. So choose the kind yourself. By default a provider
// answers only requests that name its key.
//
// # What it is not for
//
// Payments: there are no invoices, and no payment is made or checked. A kind
// may have a price (see [Rules]), which results and refusals name. Encrypted
// requests are refused, because the relays could read the answers.
package dvm
