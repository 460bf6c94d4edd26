// Package plan shows what a retry policy will do before anything runs: every
// delay with the band that jitter spreads it over, how the waits add up, and
// the worst case in all.
//
// [New] computes a [Plan]; [Text], [JSON] and [SVG] write any number of them.
// The numbers come from packages retry and backoff, which also do the waiting.
// There is no second formula here.
//
// It is not a simulator: nothing fails, nobody is throttled and no server
// states a delay. What these would change, a plan says in words.
package plan
