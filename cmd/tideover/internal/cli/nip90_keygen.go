package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/nostr"
)

const keygenLong = `Creates a Nostr key pair. The public key, npub1..., identifies you. The secret key,
nsec1..., signs your events: anyone who has it can act as you.

Both are printed, the public key first. With --out the secret key is written to a new
file that only you can read, and only the public key is printed. An existing file
is never replaced.

With --json the output is an object: npub, pubkey (the same in hex), and nsec or
file.`

const keygenExample = `  tideover nip90 keygen --out provider.nsec
  tideover nip90 keygen --json | jq -r .npub`

func newNIP90Keygen(io Streams) *cobra.Command {
	var out string
	p := &resultPrinter{io: io}
	cmd := &cobra.Command{
		Use:               "keygen [flags]",
		Short:             "Create a key pair",
		Long:              keygenLong,
		Example:           keygenExample,
		Args:              noArguments,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(*cobra.Command, []string) error { return keygen(p, out) },
	}
	f := orderedFlags(cmd)
	f.StringVarP(&out, "out", "o", "", "write the secret key to a new `file` instead of printing it")
	f.BoolVarP(&p.json, "json", "j", false, "print JSON")
	return cmd
}

// madeKey is the JSON output of keygen.
type madeKey struct {
	Npub   string `json:"npub"`
	PubKey string `json:"pubkey"`
	Nsec   string `json:"nsec,omitempty"`
	File   string `json:"file,omitempty"`
}

func keygen(p *resultPrinter, out string) error {
	key, err := nostr.GenerateKey()
	if err != nil {
		return &codedError{err, CodeOwn}
	}
	made := madeKey{Npub: nostr.Npub(key.PublicKey()), PubKey: key.PublicKey(), Nsec: key.Reveal()}
	if out != "" {
		if err := writeKey(out, key); err != nil {
			return &codedError{fmt.Errorf("--out: %w", err), CodeOwn}
		}
		made.Nsec, made.File = "", out
	}
	lines := []string{made.Npub}
	if made.Nsec != "" {
		lines = append(lines, made.Nsec)
		if process.IsTerminal(p.io.Out) {
			p.warn("nsec1... is the secret key: anyone who has it can act as you; use --out to write it to a file")
		}
	}
	return p.printRendered(made, func(*screen) []string { return lines })
}

// writeKey writes the key to a new file that only its owner can read. It never replaces a file.
func writeKey(name string, key nostr.SecretKey) error {
	err := writeNewFile(name, []byte(key.Reveal()+"\n"))
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists already: a key file is never replaced: choose another name", name)
	}
	return err
}
