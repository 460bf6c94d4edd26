package nostrtest

import (
	"errors"
	"fmt"

	"github.com/tideover/tideover/nostr"
)

var errTooLarge = fmt.Errorf("the event has more than %d bytes", maxEvent)

// checkPublished checks an event that a client sends.
func checkPublished(e *nostr.Event) error {
	if len(e.AppendJSON(nil)) > maxEvent {
		return errTooLarge
	}
	return e.Verify()
}

// publish handles a published event: it stores, answers and delivers it.
func (s *session) publish(e *nostr.Event, err error) {
	c, f := s.core, s.core.faults.forEvent(e)
	if err == nil && e.Kind == nostr.KindAuth {
		err = errors.New("this kind is for AUTH")
	}
	switch {
	case err != nil:
		s.answer(e, false, fmt.Sprint("invalid: ", err))
	case s.mustAuth():
		s.answer(e, false, needAuth)
	case times(&f.DropEvent):
		c.drop(s)
	default:
		if why := text(&f.Reject, &f.RejectNext); why != "" {
			s.answer(e, false, why)
		} else {
			s.accept(e, f)
		}
	}
}

func (s *session) accept(e *nostr.Event, f *Faults) {
	c := s.core
	known, gone := c.store.has(e.ID), c.store.isDeleted(e)
	switch {
	case times(&f.DropBeforeOK):
		c.drop(s)
	case times(&f.SwallowOK):
	case gone:
		s.answer(e, false, "blocked: its author has deleted it")
	case known:
		s.answer(e, true, "duplicate: it is here already")
	default:
		s.answer(e, true, "")
	}
	if !known && !gone {
		c.storeAndDeliver(e, true)
	}
}
