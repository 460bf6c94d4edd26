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
file.

Exit codes: 0 success, 125 the file could not be written.`

const keygenExample = `  tideover nip90 keygen --out provider.nsec
  tideover nip90 keygen --json | jq -r .npub`

func newNIP90Keygen(io Streams) *cobra.Command {
	var out string
	r := &remote{io: io}
	cmd := &cobra.Command{
		Use:                   "keygen [flags]",
		Short:                 "Create a key pair",
		Long:                  keygenLong,
		Example:               keygenExample,
		DisableFlagsInUseLine: true,
		Args:                  noArguments,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			return keygen(r, out)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&out, "out", "o", "", "write the secret key to a new `file` instead of printing it")
	f.BoolVar(&r.json, "json", false, "print JSON")
	return cmd
}

// madeKey is the JSON output of keygen.
type madeKey struct {
	Npub   string `json:"npub"`
	PubKey string `json:"pubkey"`
	Nsec   string `json:"nsec,omitempty"`
	File   string `json:"file,omitempty"`
}

func keygen(r *remote, out string) error {
	key, err := nostr.GenerateKey()
	if err != nil {
		return &codedError{err, codeOwn}
	}
	made := madeKey{Npub: nostr.Npub(key.PublicKey()), PubKey: key.PublicKey(), Nsec: key.Reveal()}
	if out != "" {
		if err := writeKey(out, key); err != nil {
			return &codedError{fmt.Errorf("--out: %w", err), codeOwn}
		}
		made.Nsec, made.File = "", out
	}
	if made.Nsec != "" && process.IsTerminal(r.io.Out) {
		r.warn("nsec1... is the secret key: anyone who has it can act as you; use --out to write it to a file")
	}
	switch {
	case r.json:
		return r.printJSON(made)
	case made.Nsec != "":
		_, err = fmt.Fprintf(r.io.Out, "%s\n%s\n", made.Npub, made.Nsec)
	default:
		_, err = fmt.Fprintln(r.io.Out, made.Npub)
	}
	return err
}

// writeKey writes the key to a new file. If that fails, it removes the file.
func writeKey(name string, key nostr.SecretKey) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s exists already: a key file is never replaced: choose another name", name)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(key.Reveal() + "\n")
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		_ = os.Remove(name)
	}
	return err
}
