// Package output stores the output of attempts: what a command wrote to its standard output and
// standard error, or the response to a request.
//
// A [Capture] keeps the beginning and the end of a stream while a command runs, in bounded memory.
// A [Store] appends the [Record] of each attempt to segment files in a folder, apart from the log of
// the engine. It limits the total size and the age of the records by removing the oldest segment.
// There is no file per attempt: a store has at most about 100 segments, whatever the number of runs.
//
// Outputs help people to find out why an attempt failed; no run depends on them. So nothing is synced
// to disk, and a failed write never fails an attempt: [Store.Append] reports it, and [Store.Problem]
// returns it until a write succeeds. Each record has checksums. After a crash, records that are not
// complete are skipped, and all others can be read.
//
// The package does not mask secrets: callers pass a stream through a redactor before it is captured,
// and so before it is cut.
package output
