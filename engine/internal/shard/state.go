package shard

import (
	"time"

	"github.com/tideover/tideover/engine/internal/machine"
)

// state is the state of a shard, and how far it is. The owner changes it, and its parts read it.
type state struct {
	m        *machine.Machine
	seq      uint64 // number of the last entry of the log
	clock    *clock
	openedAt time.Time // when this process had opened the shard
	stopping bool      // the shard is being closed: no attempt begins any more
}

// registrationTime is how long the engine waits, after it was opened, for handlers and
// workflows to be registered, before it records that one is missing.
const registrationTime = 2 * time.Second

// registeredBy returns the end of the registration time, in Unix nanoseconds.
func (s *state) registeredBy() int64 { return s.openedAt.Add(registrationTime).UnixNano() }

// isRegistering reports whether the registration time is not over.
func (s *state) isRegistering() bool { return time.Since(s.openedAt) < registrationTime }
