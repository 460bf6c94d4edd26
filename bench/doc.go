// Package bench measures Tideover beside its peers, on the same work, as ratios
// to what a careful engineer writes by hand.
//
// There is nothing to import: the package is its tests. Each scenario is one
// Benchmark function with a table of peers, of which the first is the baseline.
// "bash bench/run.sh" runs them in interleaved rounds, so that all peers meet
// the same noise, and writes docs/benchmarks.md.
//
// What counts is cpu-ns/op, the processor time of the whole process with its
// collector: on a machine shared with others it varies by a tenth where wall
// time varies by a half. It leaves out what an operation waits for.
//
// To add a peer, add a line to the tables of the scenarios that it supports.
// Build what its documentation says can be shared once, in the entry; what
// belongs to a request, such as its context, belongs in the call.
package bench
