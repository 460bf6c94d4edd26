// Package nip90 offers work over Nostr by way of the engine. A request that is
// accepted is a run, so that it is worked on until it has an outcome, also if the
// process dies. Its feedback is made from what the engine has recorded of the run,
// and is the same when it is made again. The end of the run is recorded together with
// the start of another, which signs the answer once, records it, and publishes it
// until relays have it: a job has exactly one answer.
package nip90
