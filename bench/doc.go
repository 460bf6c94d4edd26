// Package bench measures Tideover beside its peers, on the same work, as ratios
// to what a careful engineer writes by hand.
//
// There is nothing to import: the package is its tests. Each scenario is one
// Benchmark function with a table of peers, of which the first is the baseline.
// "bash bench/run.sh" runs them in interleaved rounds, so that all peers meet
// the same noise, and writes the tables of docs/benchmarks.md.
//
// The number to compare is cpu-ns/op, the processor time of the whole process with its
// garbage collector: on a machine shared with others it varies by a tenth where wall
// time varies by a half. It does not include the time that an operation waits.
//
// To add a peer, add a line to the tables of the scenarios that it supports.
// Create objects that the peer's documentation allows to share once, in the entry.
// Create everything that belongs to one request, such as its context, in the call.
package bench
