// Package audit writes an audit log of events: one line of JSON each, in a file that only its owner
// can read and that is rotated by size.
//
// A [Sink] never blocks its caller. It drops events that it can't write in time, and writes their
// number as a line. So the audit log may be incomplete; the engine's log has the state of all runs.
package audit
