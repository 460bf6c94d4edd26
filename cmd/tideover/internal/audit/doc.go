// Package audit writes an audit log: one line of JSON for each event, and for each [Entry] about the
// access to the server or its configuration. Only the owner of the file can read it. It is rotated by
// size.
//
// A [Sink] never blocks its caller. It drops lines that it can't write in time, and entries of one
// kind that are too many, and writes their number as a line. So the audit log may be incomplete; the
// engine's log has the state of all runs.
package audit
