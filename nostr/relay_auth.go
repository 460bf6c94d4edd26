package nostr

import (
	"errors"
	"fmt"
	"time"
)

// maxChallenge is longer than any challenge that relays send.
const maxChallenge = 1024

var (
	errChallenged  = errors.New("the relay requires authentication again")
	errNoChallenge = errors.New("the relay requires authentication but sends no challenge")
)

// maxUnchallenged is how many links may end because the relay requires authentication
// without sending a challenge, before the event counts as refused.
const maxUnchallenged = 2

// authPhase is the phase of our authentication on a link.
type authPhase uint8

const (
	authIdle    authPhase = iota // not required so far
	authWanted                   // required; the challenge may not have arrived yet
	authSent                     // sent, no answer yet
	authDone                     // accepted, or not answered
	authRefused                  // rejected
)

// auth is our authentication on a link (NIP-42). We authenticate once on a
// link, and only when the relay requires it, so that relays do not learn our
// identity without need.
type auth struct {
	key       SecretKey
	relay     string
	timeout   time.Duration
	phase     authPhase
	challenge string
	another   bool // a challenge arrived after the one that was answered
	id        string
	at        time.Time // when the phase changed last
	text      string    // why we are not authenticated; empty if that is not known
}

// authVerdict says what to do with a request that the relay answered with
// "auth-required".
type authVerdict uint8

const (
	authHold   authVerdict = iota // wait for the authentication
	authRetry                     // send it again: we are authenticated now
	authDenied                    // give up: the relay rejects us
)

// setChallenge stores the relay's challenge.
func (a *auth) setChallenge(text string) {
	if text == "" || len(text) > maxChallenge {
		return
	}
	a.another = a.phase >= authSent
	a.challenge = text
}

// require returns what to do with a request that was sent at the time asked and
// answered with "auth-required". An error ends the link.
func (a *auth) require(asked, now time.Time) (authVerdict, error) {
	switch {
	case a.key.IsZero():
		a.text = "the relay requires authentication, and no key is configured"
		return authDenied, nil
	case a.phase == authIdle:
		a.phase, a.at = authWanted, now
		return authHold, nil
	case a.phase < authDone:
		return authHold, nil
	case a.phase == authDone && !asked.After(a.at):
		return authRetry, nil
	case a.another:
		return authDenied, errChallenged
	}
	return authDenied, nil
}

// inProgress reports whether we are authenticating, so that other messages must
// wait.
func (a *auth) inProgress() bool { return a.phase == authWanted || a.phase == authSent }

// due returns the message to send now, or else when to call it again. An error
// ends the link.
func (a *auth) due(now time.Time) (m *Message, next time.Time, err error) {
	over := !now.Before(a.at.Add(a.timeout))
	switch {
	case a.phase == authWanted && a.challenge != "":
		m, err = a.signChallenge(now)
		return m, time.Time{}, err
	case a.phase == authWanted && over:
		return nil, time.Time{}, errNoChallenge
	case a.phase == authSent && over:
		// Some relays do not answer. The answer to the next message will show
		// the result.
		a.phase, a.at = authDone, now
	case a.inProgress():
		return nil, a.at.Add(a.timeout), nil
	}
	return nil, time.Time{}, nil
}

// signChallenge returns the message that answers the challenge.
func (a *auth) signChallenge(now time.Time) (*Message, error) {
	e := &Event{
		Kind: KindAuth, CreatedAt: now.Unix(),
		Tags: Tags{{"relay", a.relay}, {"challenge", a.challenge}},
	}
	if err := e.Sign(a.key); err != nil {
		return nil, fmt.Errorf("authenticate: %w", err)
	}
	a.phase, a.at, a.id = authSent, now, e.ID
	return &Message{Type: TypeAuth, Event: e}, nil
}

// handleOK handles the relay's answer if it is the one to our authentication.
// An error ends the link, so that we authenticate again on the next one.
func (a *auth) handleOK(m *Message, now time.Time) (ours bool, err error) {
	if a.id == "" || m.ID != a.id {
		return false, nil
	}
	switch {
	case a.phase != authSent: // too late: it already counts as accepted
	case m.OK:
		a.phase, a.at = authDone, now
	case m.Prefix() == prefixRate || m.Prefix() == prefixError:
		return true, fmt.Errorf("authenticate: the relay answered %s", printable(m.Text))
	default:
		a.phase, a.at, a.text = authRefused, now, m.Text
	}
	return true, nil
}

// linkLost resets everything.
func (a *auth) linkLost() { *a = auth{key: a.key, relay: a.relay, timeout: a.timeout} }
