package nostr

import (
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/btcsuite/btcd/btcec/v2"
	"github.com/btcsuite/btcd/btcec/v2/schnorr"
	"github.com/decred/dcrd/bech32"
)

var errNoKey = errors.New("there is no secret key: set one")

// The prefixes of keys in the form of NIP-19.
const (
	nsecWord = "nsec"
	npubWord = "npub"
)

// SecretKey signs events. Only Reveal returns it; formatting, logging and
// marshalling hide it. The zero value is no key.
type SecretKey struct {
	key    *btcec.PrivateKey
	public string
}

// GenerateKey returns a new key.
func GenerateKey() (SecretKey, error) {
	k, err := btcec.NewPrivateKey()
	if err != nil {
		return SecretKey{}, fmt.Errorf("make a key: %w", err)
	}
	return newKey(k), nil
}

func newKey(k *btcec.PrivateKey) SecretKey {
	return SecretKey{k, hex.EncodeToString(schnorr.SerializePubKey(k.PubKey()))}
}

// ParseSecretKey parses a key: nsec1…, or 64 hex digits. The error does not
// quote it.
func ParseSecretKey(text string) (SecretKey, error) {
	bytes, err := parseKey(nsecWord, text)
	if err != nil {
		return SecretKey{}, fmt.Errorf("secret key: %w", err)
	}
	var n btcec.ModNScalar
	if over := n.SetByteSlice(bytes); over || n.IsZero() {
		return SecretKey{}, errors.New("secret key: not a valid key of the curve secp256k1")
	}
	k, _ := btcec.PrivKeyFromBytes(bytes)
	return newKey(k), nil
}

// IsZero reports whether this is no key.
func (k SecretKey) IsZero() bool { return k.key == nil }

// PublicKey returns the public key in hex, as in events.
func (k SecretKey) PublicKey() string { return k.public }

// Reveal returns the key as nsec1….
func (k SecretKey) Reveal() string {
	if k.key == nil {
		return ""
	}
	return encodeKey(nsecWord, k.key.Serialize())
}

const hiddenKey = "[secret key]"

// Format implements [fmt.Formatter]; no verb shows the key.
func (k SecretKey) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(hiddenKey)) }

// MarshalText implements [encoding.TextMarshaler]; it does not show the key.
func (k SecretKey) MarshalText() ([]byte, error) { return []byte(hiddenKey), nil }

// LogValue implements [slog.LogValuer]; it does not show the key.
func (k SecretKey) LogValue() slog.Value { return slog.StringValue(hiddenKey) }

// ParsePublicKey parses a public key, npub1… or 64 hex digits, and returns it
// in hex, as in events.
func ParsePublicKey(text string) (string, error) {
	if strings.HasPrefix(strings.ToLower(text), nsecWord+"1") {
		return "", errors.New("public key: this is a secret key: use the public key, and keep this one secret")
	}
	bytes, err := parseKey(npubWord, text)
	if err != nil {
		return "", fmt.Errorf("public key: %w", err)
	}
	if _, err := schnorr.ParsePubKey(bytes); err != nil {
		return "", errors.New("public key: not a valid key of the curve secp256k1")
	}
	return hex.EncodeToString(bytes), nil
}

// Npub returns a public key in the form npub1…. It returns anything else
// unchanged.
func Npub(public string) string {
	var bytes [32]byte
	if !decodeHex(bytes[:], public) {
		return public
	}
	return encodeKey(npubWord, bytes[:])
}

// parseKey parses 32 bytes: in hex, or in the form of NIP-19 with the prefix.
func parseKey(word, text string) ([]byte, error) {
	if len(text) == 64 {
		if bytes, err := hex.DecodeString(text); err == nil {
			return bytes, nil
		}
	}
	want := fmt.Errorf("want %s1… or 64 hex digits", word)
	found, bits, err := bech32.Decode(text)
	if err != nil || found != word {
		return nil, want
	}
	bytes, err := bech32.ConvertBits(bits, 5, 8, false)
	if err != nil || len(bytes) != 32 {
		return nil, want
	}
	return bytes, nil
}

func encodeKey(word string, bytes []byte) string {
	bits, err := bech32.ConvertBits(bytes, 8, 5, true)
	if err != nil {
		return ""
	}
	text, err := bech32.Encode(word, bits)
	if err != nil {
		return ""
	}
	return text
}
