// Package gateway measures Tideover's gateway beside other ways of reaching the
// same server: none at all, the standard library's reverse proxy as it comes and
// tuned, and Caddy.
//
// "make bench-gateway" runs cmd/measure once for each round. It starts the
// upstream and every proxy, each a process of its own, and measures them in one
// scenario, then in the next, half a second at a time and in turn, so that they
// all meet the same noise. It prints lines of JSON, each a [Result]; cmd/report
// takes medians and writes the tables of docs/gateway-benchmarks.md.
//
// The proxies have one core to themselves; the upstream and the load have
// another. Upstream and load speak HTTP/1.1 by hand, so that they need less of
// their core than any proxy needs of its own: what is measured is the proxy.
//
// # What is counted
//
// Throughput is good answers per second of a closed loop: each connection sends
// the next request when it has the last answer.
//
// Latency is that of an open loop: requests fall due at a steady rate, however
// long the answers take, and each is counted from when it was due, not from when
// a connection was free for it. A stall is thus seen by all that it delayed.
//
// The latency of the first event of a stream counts from the first byte of the request;
// that of the others from the time when the upstream sent them, which each event contains.
//
// Processor time is user and system time of the proxy's process, divided by the
// number of good answers. It is the number to trust on a machine that does other
// things meanwhile.
package gateway
