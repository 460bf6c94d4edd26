package nostr

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/btcsuite/btcd/btcec/v2/schnorr"
	"github.com/tideover/tideover/internal/surrogate"
)

// Limits of what is accepted from a relay.
const (
	MaxFrame   = 512 << 10 // bytes of a message
	MaxTags    = 100       // tags of an event
	MaxContent = 64 << 10  // bytes of the content of an event
	MaxKind    = 65535

	maxTime = 1 << 53 // larger integers are not exact in JavaScript
)

// The errors of invalid events.
var (
	ErrShape     = errors.New("not an event")
	ErrID        = errors.New("the id does not match the event")
	ErrSignature = errors.New("the signature does not match the author and the id")
)

// Event is a signed event of NIP-01.
type Event struct {
	ID        string // hex of the hash of all other fields except Sig
	PubKey    string // hex of the author's public key
	CreatedAt int64  // seconds since 1970, by the author's clock
	Kind      int
	Tags      Tags
	Content   string // UTF-8, except for lone surrogates; see [Event.ToValidUTF8]
	Sig       string // hex of the author's signature of ID
}

// Tag is a name and its values.
type Tag []string

// Name returns the tag's name, empty for a tag without one.
func (t Tag) Name() string { return t.At(0) }

// Value returns the tag's first value, empty for none.
func (t Tag) Value() string { return t.At(1) }

// At returns the i-th word of the tag, the name being word 0; empty for none.
func (t Tag) At(i int) string {
	if i < len(t) {
		return t[i]
	}
	return ""
}

// Tags are the tags of an event.
type Tags []Tag

// Find returns the first tag of the name, nil if there is none.
func (ts Tags) Find(name string) Tag {
	for _, t := range ts {
		if t.Name() == name {
			return t
		}
	}
	return nil
}

// All returns the tags of the name.
func (ts Tags) All(name string) (list Tags) {
	for _, t := range ts {
		if t.Name() == name {
			list = append(list, t)
		}
	}
	return list
}

// Has reports whether there is a tag of the name with the value.
func (ts Tags) Has(name, value string) bool {
	return slices.ContainsFunc(ts, func(t Tag) bool { return t.Name() == name && len(t) > 1 && t[1] == value })
}

// Hash returns the hash of the event. Its hex form is the id.
func (e *Event) Hash() [32]byte {
	// This buffer holds an event of usual size, which is then hashed without an
	// allocation.
	var room [2048]byte
	return sha256.Sum256(e.appendCanonical(room[:0]))
}

// appendCanonical appends the JSON array of NIP-01 whose hash is the id. It does not
// use encoding/json, which escapes more characters than NIP-01 allows.
func (e *Event) appendCanonical(b []byte) []byte {
	b = append(b, `[0,"`...)
	b = append(b, e.PubKey...)
	b = append(b, `",`...)
	b = strconv.AppendInt(b, e.CreatedAt, 10)
	b = append(b, ',')
	b = strconv.AppendInt(b, int64(e.Kind), 10)
	b = append(b, ',')
	b = e.Tags.append(b)
	b = append(b, ',')
	b = appendString(b, e.Content)
	return append(b, ']')
}

func (ts Tags) append(b []byte) []byte {
	b = append(b, '[')
	for i, t := range ts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '[')
		for j, word := range t {
			if j > 0 {
				b = append(b, ',')
			}
			b = appendString(b, word)
		}
		b = append(b, ']')
	}
	return append(b, ']')
}

// appendString appends a string in the JSON form of NIP-01: seven characters have a
// short escape, and nearly all others are not escaped. It escapes other control
// characters, which JSON does not allow unescaped, and lone surrogates, which UTF-8
// cannot encode, as \uXXXX, like all implementations do.
func appendString(b []byte, s string) []byte {
	const digits = "0123456789abcdef"
	const short, letters = "\"\\\n\r\t\b\f", `"\nrtbf` // characters with an escape of their own
	b = append(b, '"')
	start := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' && c != surrogateLead {
			continue
		}
		if c == surrogateLead {
			if unit, ok := surrogateAt(s[i:]); ok {
				b = append(append(b, s[start:i]...), '\\', 'u', 'd', digits[unit>>8&15], digits[unit>>4&15], digits[unit&15])
				start = i + 3
			}
			continue
		}
		b = append(b, s[start:i]...)
		start = i + 1
		if at := strings.IndexByte(short, c); at >= 0 {
			b = append(b, '\\', letters[at])
		} else {
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(append(b, s[start:]...), '"')
}

// Sign sets PubKey, ID and Sig. Signing twice with the same key gives the same
// event.
func (e *Event) Sign(key SecretKey) error {
	if key.key == nil {
		return errNoKey
	}
	e.PubKey = key.public
	if err := e.checkBody(); err != nil {
		return err
	}
	if !e.isValidUTF8() {
		return fmt.Errorf("%w: content or tags: half of a surrogate pair, which many programs cannot read: remove it", ErrShape)
	}
	hash := e.Hash()
	sig, err := schnorr.Sign(key.key, hash[:])
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	e.ID, e.Sig = hex.EncodeToString(hash[:]), hex.EncodeToString(sig.Serialize())
	return nil
}

// Verify checks the shape, the id and then the signature, which costs most.
func (e *Event) Verify() error {
	if err := e.CheckShape(); err != nil {
		return err
	}
	if err := e.CheckID(); err != nil {
		return err
	}
	return e.CheckSignature()
}

// CheckShape checks that the fields have the form of an event and are within
// the limits of this package.
func (e *Event) CheckShape() error {
	switch {
	case !isHex(e.ID, 64):
		return fmt.Errorf("%w: id: want 64 hex digits in lower case", ErrShape)
	case !isHex(e.PubKey, 64):
		return fmt.Errorf("%w: pubkey: want 64 hex digits in lower case", ErrShape)
	case !isHex(e.Sig, 128):
		return fmt.Errorf("%w: sig: want 128 hex digits in lower case", ErrShape)
	}
	return e.checkBody()
}

// checkBody checks the fields that an author sets.
func (e *Event) checkBody() error {
	switch {
	case e.CreatedAt < 0 || e.CreatedAt > maxTime:
		return fmt.Errorf("%w: created_at: %d is out of range", ErrShape, e.CreatedAt)
	case e.Kind < 0 || e.Kind > MaxKind:
		return fmt.Errorf("%w: kind: %d is not 0 to %d", ErrShape, e.Kind, MaxKind)
	case len(e.Tags) > MaxTags:
		return fmt.Errorf("%w: tags: there are %d, at most %d", ErrShape, len(e.Tags), MaxTags)
	case len(e.Content) > MaxContent:
		return fmt.Errorf("%w: content: %d bytes, at most %d", ErrShape, len(e.Content), MaxContent)
	case !isText(e.Content):
		return fmt.Errorf("%w: content: not UTF-8", ErrShape)
	}
	if !e.Tags.all(isText) {
		return fmt.Errorf("%w: tags: not UTF-8", ErrShape)
	}
	return nil
}

// all reports whether fine returns true for every word of the tags.
func (ts Tags) all(fine func(word string) bool) bool {
	return !slices.ContainsFunc(ts, func(t Tag) bool {
		return slices.ContainsFunc(t, func(word string) bool { return !fine(word) })
	})
}

// CheckID checks that the id is that of the event.
func (e *Event) CheckID() error {
	hash := e.Hash()
	var digits [64]byte
	hex.Encode(digits[:], hash[:])
	if e.ID != string(digits[:]) {
		return ErrID
	}
	return nil
}

// CheckSignature checks that the author has signed the id. It does not check
// the id; see [Event.CheckID].
func (e *Event) CheckSignature() error {
	var id, public [32]byte
	var sig [64]byte
	if !decodeHex(id[:], e.ID) || !decodeHex(public[:], e.PubKey) || !decodeHex(sig[:], e.Sig) {
		return ErrSignature
	}
	key, err := schnorr.ParsePubKey(public[:])
	if err != nil {
		return fmt.Errorf("%w: pubkey: %w", ErrSignature, err)
	}
	s, err := schnorr.ParseSignature(sig[:])
	if err != nil {
		return fmt.Errorf("%w: sig: %w", ErrSignature, err)
	}
	if !s.Verify(id[:], key) {
		return ErrSignature
	}
	return nil
}

func isHex(s string, length int) bool {
	if len(s) != length {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func decodeHex(to []byte, s string) bool {
	if len(s) != 2*len(to) {
		return false
	}
	_, err := hex.Decode(to, []byte(s))
	return err == nil
}

// wireEvent is the JSON form of an event, with pointers to detect missing
// fields. S is string, or exactString for an event with lone surrogates, which
// takes longer to parse.
type wireEvent[S ~string] struct {
	ID        *string `json:"id"`
	PubKey    *string `json:"pubkey"`
	CreatedAt *int64  `json:"created_at"`
	Kind      *int    `json:"kind"`
	Tags      []*[]S  `json:"tags"`
	Content   *S      `json:"content"`
	Sig       *string `json:"sig"`
}

// UnmarshalJSON parses an event that has all its fields. It neither verifies it
// nor checks the limits of this package.
func (e *Event) UnmarshalJSON(data []byte) error {
	if at, _ := surrogate.Next(data); at >= 0 {
		return readEvent[exactString](e, data)
	}
	return readEvent[string](e, data)
}

func readEvent[S ~string](e *Event, data []byte) error {
	var w wireEvent[S]
	if err := json.Unmarshal(data, &w); err != nil {
		return fmt.Errorf("%w: %w", ErrShape, err)
	}
	for name, missing := range map[string]bool{
		"id": w.ID == nil, "pubkey": w.PubKey == nil, "created_at": w.CreatedAt == nil, "kind": w.Kind == nil,
		"tags": w.Tags == nil, "content": w.Content == nil, "sig": w.Sig == nil,
	} {
		if missing {
			return fmt.Errorf("%w: %s is missing", ErrShape, name)
		}
	}
	tags := make(Tags, len(w.Tags))
	for i, t := range w.Tags {
		if t == nil {
			return fmt.Errorf("%w: tags: one is null", ErrShape)
		}
		tags[i] = make(Tag, len(*t))
		for j, word := range *t {
			tags[i][j] = string(word)
		}
	}
	*e = Event{
		ID: *w.ID, PubKey: *w.PubKey, CreatedAt: *w.CreatedAt, Kind: *w.Kind, Tags: tags, Content: string(*w.Content), Sig: *w.Sig,
	}
	return nil
}

// MarshalJSON returns the event in the JSON form of NIP-01, with the characters
// escaped as relays expect.
func (e Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// AppendJSON appends the event in the JSON form of NIP-01.
func (e *Event) AppendJSON(b []byte) []byte {
	b = append(b, `{"id":`...)
	b = appendString(b, e.ID)
	b = append(b, `,"pubkey":`...)
	b = appendString(b, e.PubKey)
	b = append(b, `,"created_at":`...)
	b = strconv.AppendInt(b, e.CreatedAt, 10)
	b = append(b, `,"kind":`...)
	b = strconv.AppendInt(b, int64(e.Kind), 10)
	b = append(b, `,"tags":`...)
	b = e.Tags.append(b)
	b = append(b, `,"content":`...)
	b = appendString(b, e.Content)
	b = append(b, `,"sig":`...)
	b = appendString(b, e.Sig)
	return append(b, '}')
}

// ParseEvent parses and verifies an event.
func ParseEvent(data []byte) (*Event, error) {
	if len(data) > MaxFrame {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrShape, len(data), MaxFrame)
	}
	e := new(Event)
	if err := json.Unmarshal(bytes.TrimSpace(data), e); err != nil {
		return nil, err
	}
	if err := e.Verify(); err != nil {
		return nil, err
	}
	return e, nil
}
