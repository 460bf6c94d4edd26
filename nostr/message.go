package nostr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The types of messages between clients and relays.
const (
	TypeEvent  = "EVENT"
	TypeReq    = "REQ"
	TypeClose  = "CLOSE"
	TypeAuth   = "AUTH"
	TypeOK     = "OK"
	TypeEOSE   = "EOSE"
	TypeClosed = "CLOSED"
	TypeNotice = "NOTICE"
)

// KindAuth is the kind of the events with which a client authenticates to a
// relay (NIP-42).
const KindAuth = 22242

// ErrMessage is the error of data that is not a message of NIP-01.
var ErrMessage = errors.New("not a message of NIP-01")

// Message is a message between a client and a relay. Type determines which of
// the other fields are set.
type Message struct {
	Type    string
	Sub     string   // EVENT from a relay, REQ, CLOSE, EOSE, CLOSED: the subscription
	Event   *Event   // EVENT, AUTH from a client: not verified
	Filters []Filter // REQ
	ID      string   // OK: of the event
	OK      bool     // OK: whether it was accepted
	Text    string   // OK, CLOSED, NOTICE: a machine-readable prefix and a text; AUTH from a relay: the challenge
}

// Prefix returns the machine-readable prefix of the text of OK and CLOSED:
// duplicate, rate-limited, blocked…; empty if there is none.
func (m *Message) Prefix() string {
	word, _, ok := strings.Cut(m.Text, ":")
	if !ok || strings.ContainsAny(word, " \t\n") {
		return ""
	}
	return word
}

// ParseRelayMessage parses a message from a relay.
func ParseRelayMessage(data []byte) (*Message, error) {
	parts, m, err := split(data)
	if err != nil {
		return nil, err
	}
	switch m.Type {
	case TypeEvent:
		m.Event = new(Event)
		return m, fields(parts, &m.Sub, m.Event)
	case TypeOK:
		return m, withText(parts, m, &m.ID, &m.OK)
	case TypeEOSE:
		return m, fields(parts, &m.Sub)
	case TypeClosed:
		return m, withText(parts, m, &m.Sub)
	case TypeNotice, TypeAuth:
		return m, fields(parts, &m.Text)
	}
	return nil, fmt.Errorf("%w: unknown type %.20q", ErrMessage, m.Type)
}

// ParseClientMessage parses a message from a client.
func ParseClientMessage(data []byte) (*Message, error) {
	parts, m, err := split(data)
	if err != nil {
		return nil, err
	}
	switch m.Type {
	case TypeEvent, TypeAuth:
		m.Event = new(Event)
		return m, fields(parts, m.Event)
	case TypeReq:
		if err := fields(parts, &m.Sub); err != nil {
			return m, err
		}
		for _, p := range parts[1:] {
			var f Filter
			if err := json.Unmarshal(p, &f); err != nil {
				return m, fmt.Errorf("%w: REQ: %w", ErrMessage, err)
			}
			m.Filters = append(m.Filters, f)
		}
		return m, nil
	case TypeClose:
		return m, fields(parts, &m.Sub)
	}
	return nil, fmt.Errorf("%w: unknown type %.20q", ErrMessage, m.Type)
}

// split returns the parts after the type of a message, and a Message with the
// type.
func split(data []byte) ([]json.RawMessage, *Message, error) {
	if len(data) > MaxFrame {
		return nil, nil, fmt.Errorf("%w: %d bytes, at most %d", ErrMessage, len(data), MaxFrame)
	}
	if !utf8.Valid(data) {
		return nil, nil, fmt.Errorf("%w: not UTF-8", ErrMessage)
	}
	var parts []json.RawMessage
	if err := json.Unmarshal(bytes.TrimSpace(data), &parts); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrMessage, err)
	}
	m := new(Message)
	if len(parts) == 0 {
		return nil, nil, fmt.Errorf("%w: empty array", ErrMessage)
	}
	return parts[1:], m, fields(parts, &m.Type)
}

// fields parses the first parts of a message; there may be more.
func fields(parts []json.RawMessage, into ...any) error {
	if len(parts) < len(into) {
		return fmt.Errorf("%w: %d parts are missing", ErrMessage, len(into)-len(parts))
	}
	for i, v := range into {
		if string(parts[i]) == "null" {
			return fmt.Errorf("%w: part %d is null", ErrMessage, i+1)
		}
		if err := json.Unmarshal(parts[i], v); err != nil {
			return fmt.Errorf("%w: %w", ErrMessage, err)
		}
	}
	return nil
}

// withText parses the parts of an answer, and the text after them if there is one:
// some relays omit it.
func withText(parts []json.RawMessage, m *Message, into ...any) error {
	if len(parts) > len(into) {
		into = append(into, &m.Text)
	}
	return fields(parts, into...)
}

// Append appends the JSON form of the message, as a client or as a relay writes
// it.
func (m *Message) Append(b []byte, client bool) []byte {
	b = appendString(append(b, '['), m.Type)
	word := func(s string) { b = appendString(append(b, ','), s) }
	event := func() { b = m.Event.AppendJSON(append(b, ',')) }
	switch {
	case client && (m.Type == TypeEvent || m.Type == TypeAuth):
		event()
	case m.Type == TypeEvent:
		word(m.Sub)
		event()
	case m.Type == TypeReq:
		word(m.Sub)
		for _, f := range m.Filters {
			text, _ := f.MarshalJSON() // never fails
			b = append(append(b, ','), text...)
		}
	case m.Type == TypeOK:
		word(m.ID)
		b = fmt.Appendf(b, ",%t", m.OK)
		word(m.Text)
	case m.Type == TypeClosed:
		word(m.Sub)
		word(m.Text)
	case m.Type == TypeNotice, m.Type == TypeAuth:
		word(m.Text)
	default: // CLOSE, EOSE
		word(m.Sub)
	}
	return append(b, ']')
}
