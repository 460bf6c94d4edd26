// Package nip90 accepts NIP-90 jobs from Nostr relays and runs them on the engine.
//
// Each accepted request is a run, so that it gets an outcome even if the process dies. The
// feedback to the customer is computed from the stored state of the run, so that it is the
// same when it is computed again. The engine stores the end of the run together with the
// start of a second run. That run signs the answer once, stores it, and publishes it until
// relays have it. So a job has exactly one answer.
package nip90
