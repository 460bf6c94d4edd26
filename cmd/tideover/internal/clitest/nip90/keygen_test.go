//go:build unix

package nip90_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/nostr"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

func TestKeygenPrintsBothHalves(t *testing.T) {
	t.Parallel()
	got := clitest.Run(t, "nip90", "keygen")
	clitest.WantCode(t, got, 0)
	npub, nsec, _ := strings.Cut(got.Out, "\n")
	key, err := nostr.ParseSecretKey(strings.TrimSpace(nsec))
	if err != nil || nostr.Npub(key.PublicKey()) != npub || got.Stderr != "" {
		t.Errorf("%q: %v; stderr %q", got.Out, err, got.Stderr)
	}
	var made struct{ Npub, PubKey, Nsec string }
	got = clitest.Run(t, "nip90", "keygen", "--json")
	if err := json.Unmarshal([]byte(got.Out), &made); err != nil {
		t.Fatal(err)
	}
	if key, err := nostr.ParseSecretKey(made.Nsec); err != nil || key.PublicKey() != made.PubKey || nostr.Npub(made.PubKey) != made.Npub {
		t.Errorf("%s: %v", got.Out, err)
	}
}

func TestKeygenWritesANewFileForItsOwnerOnly(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "key")
	got := clitest.Run(t, "nip90", "keygen", "--out", name)
	clitest.WantCode(t, got, 0)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	key, err := nostr.ParseSecretKey(strings.TrimSpace(string(text)))
	if err != nil || nostr.Npub(key.PublicKey())+"\n" != got.Out || strings.Contains(got.Out+got.Stderr, "nsec1") {
		t.Errorf("%v; stdout %q, stderr %q", err, got.Out, got.Stderr)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v, want mode 0600", info, err)
	}

	again := clitest.Run(t, "nip90", "keygen", "--out", name)
	clitest.WantCode(t, again, 125)
	clitest.WantIn(t, "stderr", again.Stderr, "exists already")
	if after, _ := os.ReadFile(name); string(after) != string(text) || again.Out != "" {
		t.Errorf("the key was written over, or another one printed: %q", again.Out)
	}
	clitest.WantCode(t, clitest.Run(t, "nip90", "keygen", "--out", filepath.Join(name, "below")), 125)
	clitest.WantCode(t, clitest.Run(t, "nip90", "keygen", "--out", ""), 125)
	clitest.WantCode(t, clitest.Run(t, "nip90", "keygen", "now"), 125)
}

func TestKeygenWarnsOnATerminal(t *testing.T) {
	t.Parallel()
	s := clitest.OnTerminal(t, "nip90", "keygen")
	s.Expect("anyone who has it can act as you")
	s.Expect("npub1")
	s.Expect("nsec1")
	s.WantCode(0)
}
