// Package plan shows the delays of a retry policy before it is used: every delay with its band
// (the range from which jitter draws), the sums of the waits, and the worst case.
//
// [New] computes a [Plan]; [Text], [JSON] and [SVG] write any number of plans. The delays are
// computed by packages retry and backoff, as in a real call.
//
// It is not a simulator: it assumes that every attempt fails, and that no server throttles or
// states a delay. The notes of a plan say what those would change.
package plan
