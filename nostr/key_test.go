package nostr_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/tideover/tideover/nostr"
)

// The vectors of NIP-19.
const (
	nsec       = "nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5"
	nsecHex    = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa"
	nsecPublic = "7e7e9c42a91bfef19fa929e5fda1b72e0ebc1a4c1141673e2794234d86addf4e"
	npub       = "npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg"
)

func TestKeysOfNIP19(t *testing.T) {
	t.Parallel()
	for _, text := range []string{nsec, nsecHex, strings.ToUpper(nsec), strings.ToUpper(nsecHex)} {
		k, err := nostr.ParseSecretKey(text)
		if err != nil || k.PublicKey() != nsecPublic || k.Reveal() != nsec || k.IsZero() {
			t.Errorf("ParseSecretKey(%q): public %q, %q, %v", text, k.PublicKey(), k.Reveal(), err)
		}
	}
	for _, text := range []string{npub, nsecPublic, strings.ToUpper(npub)} {
		if got, err := nostr.ParsePublicKey(text); err != nil || got != nsecPublic {
			t.Errorf("ParsePublicKey(%q): %q, %v, want %q", text, got, err, nsecPublic)
		}
	}
	if got := nostr.Npub(nsecPublic); got != npub {
		t.Errorf("Npub: %q, want %q", got, npub)
	}
	if got := nostr.Npub("me"); got != "me" {
		t.Errorf("Npub of what is no key: %q, want it as it is", got)
	}
}

func TestKeysThatAreNot(t *testing.T) {
	t.Parallel()
	order := "fffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141"
	for _, text := range []string{
		"", "nsec1", npub, nsec[:len(nsec)-1] + "q", strings.ToUpper(nsec[:9]) + nsec[9:], nsecHex[1:], nsecHex + "0",
		strings.Repeat("0", 64), order, strings.Repeat("f", 64), strings.Repeat("g", 64),
	} {
		k, err := nostr.ParseSecretKey(text)
		if err == nil || !k.IsZero() {
			t.Errorf("ParseSecretKey(%q): nil, want an error", text)
			continue
		}
		if len(text) > 10 && strings.Contains(err.Error(), text[5:10]) {
			t.Errorf("ParseSecretKey: %v, want it not quoted", err)
		}
	}
	for _, text := range []string{"", "npub1", nsec, strings.Repeat("0", 64), npub[:len(npub)-1] + "q"} {
		got, err := nostr.ParsePublicKey(text)
		if err == nil {
			t.Errorf("ParsePublicKey(%q): %q, want an error", text, got)
		} else if text == nsec && (!strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), nsec)) {
			t.Errorf("ParsePublicKey of a secret key: %v, want a warning that does not quote it", err)
		}
	}
}

func TestASecretKeyIsNotShown(t *testing.T) {
	t.Parallel()
	k, err := nostr.ParseSecretKey(nsec)
	if err != nil {
		t.Fatal(err)
	}
	holder := struct {
		Key nostr.SecretKey
		Ptr *nostr.SecretKey
	}{k, &k}
	var out bytes.Buffer
	for verb := range strings.SplitSeq("v +v #v s q x X d t p T c U e g b o", " ") {
		format := "%" + verb + " "
		fmt.Fprintf(&out, format, k)
		if verb != "p" { // an address is no secret
			fmt.Fprintf(&out, format+format, &k, holder)
		}
		fmt.Fprintf(&out, format, []nostr.SecretKey{k})
	}
	for _, v := range []any{k, &k, holder, map[string]any{"k": k}, map[nostr.SecretKey]int{k: 1}} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Errorf("json.Marshal(%T): %v", v, err)
		}
		out.Write(text)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "key", k, "ptr", &k, "holder", holder)
	slog.New(slog.NewTextHandler(&out, nil)).Info("x", "key", k, "ptr", &k, "holder", holder)
	cfg := nostr.ClientConfig{Key: k}
	fmt.Fprintf(&out, "%+v %#v", cfg, cfg)

	text := strings.ToLower(out.String())
	for _, secret := range []string{nsec, nsecHex, nsec[5:20], nsecHex[:16], "103 222 162", "0x67, 0xde"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is shown:\n%s", secret, text)
		}
	}
	if !strings.Contains(text, "[secret key]") {
		t.Errorf("nothing says that there is a key:\n%s", text)
	}
	if (nostr.SecretKey{}).Reveal() != "" {
		t.Error("the zero key reveals something")
	}
}

func TestGeneratedKeysDiffer(t *testing.T) {
	t.Parallel()
	a, errA := nostr.GenerateKey()
	b, errB := nostr.GenerateKey()
	if errA != nil || errB != nil || a.PublicKey() == b.PublicKey() {
		t.Errorf("GenerateKey: %v, %v, the same %t", errA, errB, a.PublicKey() == b.PublicKey())
	}
	if again, err := nostr.ParseSecretKey(a.Reveal()); err != nil || again.PublicKey() != a.PublicKey() {
		t.Errorf("ParseSecretKey(Reveal()): %v", err)
	}
}

func ExampleParseSecretKey() {
	key, err := nostr.ParseSecretKey("nsec1vl029mgpspedva04g90vltkh6fvh240zqtv9k0t9af8935ke9laqsnlfe5")
	fmt.Println(key, err)
	fmt.Println(nostr.Npub(key.PublicKey()))
	// Output:
	// [secret key] <nil>
	// npub10elfcs4fr0l0r8af98jlmgdh9c8tcxjvz9qkw038js35mp4dma8qzvjptg
}
