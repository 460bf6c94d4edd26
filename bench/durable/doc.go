// Package durable measures Tideover's engine beside other things that keep
// tasks on disk, on the same work at the same durability, and with a million
// runs that wait.
//
// "make bench-durable" and "make bench-waiting" run cmd/measure, one process for
// each measurement, in interleaved rounds, so that all systems meet the same
// noise and none inherits the memory of another. Each process prints one line of
// JSON, a [Result]; cmd/report takes medians and writes docs/durable-benchmarks.md.
//
// # What is counted
//
// A task has a payload of 200 bytes of JSON, which the handler decodes; it does
// nothing else. 16 goroutines, the callers, start tasks; each starts the next one
// when the system has said that the last one is stored.
//
// Throughput is tasks per second from the first start until the system itself
// says that all are recorded as completed: not that the handlers have returned.
// It is asked every 2 ms from the return of the last handler on.
//
// The latency of a start is the caller's: from the call to its return. Where
// a call starts a batch, it is that of the batch.
//
// Lateness is from the time for which a task was scheduled to the first line of
// its handler. Whatever starts early is negative.
//
// Processor time is user and system time of our process and all processes of the
// server, from the first start until the work behind the answers is done too (our
// lists and search are written behind the log), divided by the number of tasks.
package durable
