package nostrtest

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tideover/tideover/nostr"
)

const (
	needAuth = "auth-required: say who you are"

	// maxAuthAge is how far the time of an AUTH event may be from now (NIP-42).
	maxAuthAge = 10 * time.Minute
)

// mustAuth reports whether the client must authenticate first, and sends it the
// challenge.
func (s *session) mustAuth() bool {
	if !s.core.faults.AuthRequired || s.known {
		return false
	}
	s.challengeOnce()
	return true
}

func (s *session) challengeOnce() {
	if !s.challenged {
		s.challenged = true
		s.sendMessage(&nostr.Message{Type: nostr.TypeAuth, Text: s.challenge})
	}
}

// authenticate handles the event with which a client authenticates.
func (s *session) authenticate(e *nostr.Event, err error) {
	if err == nil {
		err = s.checkAuth(e)
	}
	if err != nil {
		s.answer(e, false, fmt.Sprint("invalid: ", err))
		return
	}
	s.known = true
	s.answer(e, true, "")
}

func (s *session) checkAuth(e *nostr.Event) error {
	url := strings.TrimSuffix(e.Tags.Find("relay").Value(), "/")
	switch {
	case e.Kind != nostr.KindAuth:
		return fmt.Errorf("AUTH: kind %d is not %d", e.Kind, nostr.KindAuth)
	// real clock: NIP-42 asks for it, and ten minutes are longer than any test
	case time.Since(time.Unix(e.CreatedAt, 0)).Abs() > maxAuthAge:
		return errors.New("AUTH: created_at is too far from now")
	case url != s.core.url:
		return fmt.Errorf("AUTH: the tag relay is not %s", s.core.url)
	case !s.challenged || e.Tags.Find("challenge").Value() != s.challenge:
		return errors.New("AUTH: the tag challenge is not the challenge that was sent")
	}
	return nil
}
