package cli

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/nostr"
)

const keygenLong = `Makes a key. The public half, npub1..., is who you are to others. The secret half,
nsec1..., signs what you say: whoever has it is you.

Both are printed, the public one first. With --out the secret one goes to a new file
that only you can read, and only the public one is printed; a file that is there is
never written over.

With --json it is an object: npub, pubkey (the same in hex), and nsec or file.

Exit codes: 0 done, 125 the file could not be written.`

const keygenExample = `  tideover nip90 keygen --out provider.nsec
  tideover nip90 keygen --json | jq -r .npub`

func newNIP90Keygen(io Streams) *cobra.Command {
	var out string
	r := &remote{io: io}
	cmd := &cobra.Command{
		Use:                   "keygen [flags]",
		Short:                 "Make a key",
		Long:                  keygenLong,
		Example:               keygenExample,
		DisableFlagsInUseLine: true,
		Args:                  none,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			return keygen(r, out)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&out, "out", "o", "", "write the secret key to a new `file`, and don't print it")
	f.BoolVar(&r.json, "json", false, "print JSON")
	return cmd
}

// madeKey is the JSON form of what keygen prints.
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
		r.warn("nsec1... is the secret key: whoever has it is you. --out keeps it off the screen")
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

// writeKey writes the key to a file that was not there. Half a key is no key: what
// could not be written as a whole is removed.
func writeKey(name string, key nostr.SecretKey) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there already; a key is never written over", name)
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
