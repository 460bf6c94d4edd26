// Package metrics collects the server's metrics for Prometheus. Counters are computed from the
// event stream; gauges are read from their source at each scrape. Names, labels and meanings are
// in docs/metrics.md; they may be added, but not changed.
//
// The NIP-90 provider has its own collector.
package metrics
