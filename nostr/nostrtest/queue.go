package nostrtest

import (
	"time"

	"github.com/tideover/tideover/nostr"
)

// frame is what is written to a client: a message, or a raw text.
type frame struct {
	message *nostr.Message // nil for a text
	text    string
	due     time.Time // zero means at once
}

func (f *frame) bytes() []byte {
	if f.message == nil {
		return []byte(f.text)
	}
	return f.message.Append(nil, false)
}

// queue holds the frames for a client. Frames with a later due time do not
// delay the others.
type queue struct {
	ready, late []frame // each in the order of adding
}

func (q *queue) put(f frame) {
	if f.due.IsZero() {
		q.ready = append(q.ready, f)
	} else {
		q.late = append(q.late, f)
	}
}

func (q *queue) len() int { return len(q.ready) + len(q.late) }

// next removes the frame to write now. If there is none, it returns how long to
// wait for one; 0 means until more is added.
func (q *queue) next(now time.Time) (f frame, wait time.Duration, ok bool) {
	switch {
	case len(q.late) > 0 && !q.late[0].due.After(now):
		f, q.late = q.late[0], q.late[1:]
		return f, 0, true
	case len(q.ready) > 0:
		f, q.ready = q.ready[0], q.ready[1:]
		return f, 0, true
	case len(q.late) > 0:
		return frame{}, q.late[0].due.Sub(now), false
	}
	return frame{}, 0, false
}
