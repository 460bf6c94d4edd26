// Package durable measures Tideover's engine beside other systems that store
// tasks on disk, on the same work at the same durability, and with a million
// waiting runs.
//
// "make bench-durable" and "make bench-waiting" run cmd/measure, one process
// for each measurement, in interleaved rounds, so that all systems meet the
// same noise and none inherits the memory of another. Each process prints one
// line of JSON, a [Result]; cmd/report computes medians and writes
// the tables of docs/durable-benchmarks.md.
//
// # What is counted
//
// A task has a payload of 200 bytes of JSON, which the handler decodes; it does
// nothing else. 16 goroutines, the callers, start tasks; each starts the next
// one when the system has acknowledged the last one.
//
// Throughput is tasks per second from the first start until the system itself
// reports that all are recorded as completed: not that the handlers have
// returned. It is polled every 2 ms after the last handler has returned.
//
// The latency of a start is the duration of the call. If a call starts a batch, it is the
// duration for the batch.
//
// Lateness is from the scheduled time of a task to the first line of its
// handler. It is negative for a task that starts early.
//
// Processor time is user and system time of our process and all processes of
// the server, from the first start until the work after the acknowledgements is
// done too (our lists and search are written after the log), divided by the
// number of tasks.
package durable
