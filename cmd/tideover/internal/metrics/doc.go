// Package metrics collects the server's metrics for Prometheus. It computes counters from the event
// stream, and reads gauges from the engine and the gateway at each scrape. docs/metrics.md lists the
// metrics and their labels. New ones may be added, but existing ones must not change.
//
// Package nip90 has a collector of its own.
package metrics
