package nostr

import (
	"errors"
	"fmt"
	"time"
)

// maxChallenge is more than any relay needs.
const maxChallenge = 1024

var (
	errChallenged  = errors.New("the relay asks again who we are")
	errNoChallenge = errors.New("the relay asks who we are and gives no challenge")
)

// maxUnchallenged is on how many links a relay may ask who we are without a challenge
// before the event is taken for refused.
const maxUnchallenged = 2

type authPhase uint8

const (
	authIdle    authPhase = iota // nobody asked
	authWanted                   // the relay wants to know; the challenge may be missing yet
	authSent                     // said
	authDone                     // said, and not denied
	authRefused                  // said, and denied
)

// auth is what a relay knows of us on a link (NIP-42). We say it once on a link,
// and only when the relay will not serve us otherwise: whom we are is nobody's
// business without need.
type auth struct {
	key       SecretKey
	relay     string
	timeout   time.Duration
	phase     authPhase
	challenge string
	another   bool // a challenge came after the one that was answered
	id        string
	at        time.Time // of the last change of phase
	text      string    // of the refusal
}

// authVerdict says what to do with what the relay did not do for a stranger.
type authVerdict uint8

const (
	authHold   authVerdict = iota // until it knows us
	authAgain                     // it knows us by now
	authDenied                    // it will not
)

// challenged takes the relay's challenge.
func (a *auth) challenged(text string) {
	if text == "" || len(text) > maxChallenge {
		return
	}
	a.another = a.phase >= authSent
	a.challenge = text
}

// need says what to do with something that was asked then and answered with
// "auth-required". An error ends the link.
func (a *auth) need(asked, now time.Time) (authVerdict, error) {
	switch {
	case a.key.IsZero():
		a.text = "the relay asks who we are, and there is no key"
		return authDenied, nil
	case a.phase == authIdle:
		a.phase, a.at = authWanted, now
		return authHold, nil
	case a.phase < authDone:
		return authHold, nil
	case a.phase == authDone && !asked.After(a.at):
		return authAgain, nil
	case a.another:
		return authDenied, errChallenged
	}
	return authDenied, nil
}

// busy reports whether other messages should wait.
func (a *auth) busy() bool { return a.phase == authWanted || a.phase == authSent }

// due returns the message to send now, or else when to ask again. An error ends
// the link.
func (a *auth) due(now time.Time) (m *Message, next time.Time, err error) {
	over := !now.Before(a.at.Add(a.timeout))
	switch {
	case a.phase == authWanted && a.challenge != "":
		m, err = a.answer(now)
		return m, time.Time{}, err
	case a.phase == authWanted && over:
		return nil, time.Time{}, errNoChallenge
	case a.phase == authSent && over:
		// Some relays don't answer; what they say to the next message tells.
		a.phase, a.at = authDone, now
	case a.busy():
		return nil, a.at.Add(a.timeout), nil
	}
	return nil, time.Time{}, nil
}

func (a *auth) answer(now time.Time) (*Message, error) {
	e := &Event{
		Kind: KindAuth, CreatedAt: now.Unix(),
		Tags: Tags{{"relay", a.relay}, {"challenge", a.challenge}},
	}
	if err := e.Sign(a.key); err != nil {
		return nil, fmt.Errorf("say who we are: %w", err)
	}
	a.phase, a.at, a.id = authSent, now, e.ID
	return &Message{Type: TypeAuth, Event: e}, nil
}

// answered takes the relay's answer, if it is one to what we said. An error ends
// the link, so that it is said again on the next one.
func (a *auth) answered(m *Message, now time.Time) (ours bool, err error) {
	if a.id == "" || m.ID != a.id {
		return false, nil
	}
	switch {
	case a.phase != authSent: // too late; it was taken for done
	case m.OK:
		a.phase, a.at = authDone, now
	case m.Prefix() == prefixRate || m.Prefix() == prefixError:
		return true, fmt.Errorf("the relay can't be told who we are: %s", printable(m.Text))
	default:
		a.phase, a.at, a.text = authRefused, now, m.Text
	}
	return true, nil
}

// linkLost forgets everything.
func (a *auth) linkLost() { *a = auth{key: a.key, relay: a.relay, timeout: a.timeout} }
