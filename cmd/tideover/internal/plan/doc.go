// Package plan shows the delays of a retry policy before it is used: every delay with the band
// of its jitter, the sums of the waits, and the worst case.
//
// [New] computes a [Plan]; [Text], [JSON] and [SVG] write any number of them. The numbers come
// from packages retry and backoff, which also do the waiting.
//
// It is not a simulator: there are no failures, no throttling and no delays stated by a server.
// The notes of a plan say what those would change.
package plan
