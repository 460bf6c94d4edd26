package admin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/console/control"

	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/secret"
)

// Lifetimes of callback URLs.
const (
	DefaultExpiry = 24 * time.Hour
	MaxExpiry     = 30 * 24 * time.Hour
)

// MaxCallbackBody limits the payload of a callback, in bytes: as much as a run can store.
const MaxCallbackBody = 256 << 10

// Callbacks makes callback URLs, and accepts the requests to them. A callback URL is signed, belongs to
// one run and one name of a signal, expires, and can be used once.
type Callbacks struct {
	engine *engine.Engine
	key    secret.String
	place  func() notify.Place
}

// New returns a URL that sends a signal with this name to the run, and that expires after the time.
func (c *Callbacks) New(ctx context.Context, run, name string, expires time.Duration) (Callback, error) {
	if err := control.CheckSignalName(name); err != nil {
		return Callback{}, err
	}
	if expires <= 0 || expires > MaxExpiry {
		return Callback{}, control.Invalid("expires", "%v is not between 1s and 30d", expires)
	}
	if c.key.IsZero() {
		return Callback{}, control.NewError(control.CodeState, "this server can't sign callback URLs", "set server.callback-key to the same secret in all processes of the cluster")
	}
	info, err := c.engine.Get(ctx, run)
	if err != nil {
		return Callback{}, err
	}
	if info.Finished() && info.ContinuedBy == "" {
		e := control.NewError(control.CodeState, "run "+run+" is "+info.State+", and takes no signals", "")
		e.Outcome = control.NewOutcome(info)
		return Callback{}, e
	}
	if info.Operations == nil {
		return Callback{}, control.NewError(control.CodeState, "workflow "+info.Workflow+" has no function that could wait for the signal "+name, "")
	}
	ticket := ticket{run: run, name: name, expires: time.Now().Add(expires).Truncate(time.Second)}
	_, _ = rand.Read(ticket.nonce[:]) // it never fails
	page := ""
	if c.place != nil {
		page = strings.TrimSuffix(c.place().Page, "/")
	}
	return Callback{URL: page + httpserver.CallbackPrefix + ticket.sign(c.key), Expires: ticket.expires.UTC()}, nil
}

// Accept sends the signal of a callback URL. token is the last part of its path. read returns the
// payload; it is called only if the signature is valid. The errors say nothing about the run, since
// the caller is not authenticated.
func (c *Callbacks) Accept(ctx context.Context, token string, read func() (json.RawMessage, error)) error {
	t, ok := verify(token, c.key)
	switch {
	case !ok:
		return control.NewError(control.CodeForbidden, "the signature of this callback URL is wrong", "use the URL as it was given to you")
	case !time.Now().Before(t.expires):
		return control.NewError(control.CodeExpired, "this callback URL has expired", "ask for a new one")
	}
	payload, err := read()
	if err == nil {
		err = control.CheckPayload("", payload)
	}
	if err != nil {
		return err
	}
	id := "callback " + base64.RawURLEncoding.EncodeToString(t.nonce[:])
	err = c.engine.Signal(ctx, t.run, t.name, payload, engine.ID(id), engine.SentBy("callback"), engine.Once())
	for _, known := range []struct {
		err  error
		as   control.Code
		text string
	}{
		{engine.ErrSignalUsed, control.CodeUsed, "this callback URL was used already"},
		{engine.ErrState, control.CodeState, "nothing waits for this callback any more"},
		{engine.ErrNotFound, control.CodeNotFound, "nothing waits for this callback any more"},
		{engine.ErrTooManySignals, control.CodeTooMany, "too many signals wait to be processed"},
		{engine.ErrTooLarge, control.CodeTooLarge, "the body is too large"},
	} {
		if errors.Is(err, known.err) {
			return control.NewError(known.as, known.text, "")
		}
	}
	return err
}

// ticket is what a callback URL permits.
type ticket struct {
	run     string
	name    string // of the signal
	expires time.Time
	nonce   [16]byte
}

// ticketVersion is the first byte of a ticket.
const ticketVersion = 1

// sign returns the ticket as the last part of a callback URL: its encoding, a dot and the signature.
func (t *ticket) sign(key secret.String) string {
	text := []byte{ticketVersion}
	text = binary.BigEndian.AppendUint64(text, uint64(t.expires.Unix()))
	text = append(text, t.nonce[:]...)
	text = append(text, byte(len(t.run)))
	text = append(text, t.run...)
	text = append(text, t.name...)
	return base64.RawURLEncoding.EncodeToString(text) + "." + base64.RawURLEncoding.EncodeToString(signature(text, key))
}

// verify returns the ticket of a callback URL. ok is false if the key has not signed it.
func verify(token string, key secret.String) (t ticket, ok bool) {
	encoded, sum, _ := strings.Cut(token, ".")
	text, err := base64.RawURLEncoding.Strict().DecodeString(encoded)
	given, err2 := base64.RawURLEncoding.Strict().DecodeString(sum)
	if err != nil || err2 != nil || key.IsZero() || !hmac.Equal(given, signature(text, key)) {
		return t, false
	}
	const fixed = 1 + 8 + len(t.nonce) + 1
	if len(text) < fixed || text[0] != ticketVersion || len(text) < fixed+int(text[fixed-1]) {
		return t, false // signed by another version
	}
	t.expires = time.Unix(int64(binary.BigEndian.Uint64(text[1:])), 0)
	copy(t.nonce[:], text[9:])
	rest := text[fixed:]
	t.run, t.name = string(rest[:text[fixed-1]]), string(rest[text[fixed-1]:])
	return t, true
}

// signature returns the HMAC of an encoded ticket.
func signature(text []byte, key secret.String) []byte {
	m := hmac.New(sha256.New, []byte(key.Reveal()))
	m.Write([]byte("tideover callback\x00"))
	m.Write(text)
	return m.Sum(nil)
}
