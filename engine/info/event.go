package info

import "github.com/tideover/tideover/retry"

// Event is a retry.Event with its sequence number in the event stream of the process.
type Event struct {
	Seq uint64 // sequence number; begins at 1 in each process
	retry.Event
	Member string // id of the cluster member in which the event happened; "" for this process
}

// NewEvents is the sequence number after which only new events come.
const NewEvents = ^uint64(0)
