// Package metrics counts what the server does, for Prometheus. Counters are a fold
// of the one event stream; gauges are read from whoever knows when they are asked
// for. Names, labels and meanings are in docs/metrics.md, and are only added to.
//
// The NIP-90 provider has a collector of its own.
package metrics
