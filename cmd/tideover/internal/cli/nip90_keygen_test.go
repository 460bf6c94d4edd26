//go:build unix

package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/nostr"
)

func TestKeygenPrintsBothHalves(t *testing.T) {
	t.Parallel()
	got := tideover(t, "nip90", "keygen")
	wantCode(t, got, 0)
	npub, nsec, _ := strings.Cut(got.out, "\n")
	key, err := nostr.ParseSecretKey(strings.TrimSpace(nsec))
	if err != nil || nostr.Npub(key.PublicKey()) != npub || got.stderr != "" {
		t.Errorf("%q: %v; stderr %q", got.out, err, got.stderr)
	}
	var made madeKey
	got = tideover(t, "nip90", "keygen", "--json")
	if err := json.Unmarshal([]byte(got.out), &made); err != nil {
		t.Fatal(err)
	}
	if key, err := nostr.ParseSecretKey(made.Nsec); err != nil || key.PublicKey() != made.PubKey || nostr.Npub(made.PubKey) != made.Npub {
		t.Errorf("%s: %v", got.out, err)
	}
}

func TestKeygenWritesANewFileForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "key")
	got := tideover(t, "nip90", "keygen", "--out", name)
	wantCode(t, got, 0)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	key, err := nostr.ParseSecretKey(strings.TrimSpace(string(text)))
	if err != nil || nostr.Npub(key.PublicKey())+"\n" != got.out || strings.Contains(got.out+got.stderr, "nsec1") {
		t.Errorf("%v; stdout %q, stderr %q", err, got.out, got.stderr)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, want mode 0600", info, err)
	}

	again := tideover(t, "nip90", "keygen", "--out", name)
	wantCode(t, again, 125)
	wantIn(t, "stderr", again.stderr, "exists already")
	if after, _ := os.ReadFile(name); string(after) != string(text) || again.out != "" {
		t.Errorf("the key was written over, or another one printed: %q", again.out)
	}
	wantCode(t, tideover(t, "nip90", "keygen", "--out", filepath.Join(name, "below")), 125)
	wantCode(t, tideover(t, "nip90", "keygen", "--out", ""), 125)
	wantCode(t, tideover(t, "nip90", "keygen", "now"), 125)
}

func TestKeygenWarnsOnATerminal(t *testing.T) {
	t.Parallel()
	s := onTerminal(t, "nip90", "keygen")
	s.expect("anyone who has it can act as you")
	s.expect("npub1")
	s.expect("nsec1")
	s.wantCode(0)
}
