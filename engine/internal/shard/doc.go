// Package shard runs the runs of one log: its owner makes one turn after the other, stores what was decided in it, and
// then begins attempts, calls functions and answers requests. Another goroutine can only send it a request: a
// method that records something needs a [Recorder], and only the owner has one.
package shard
