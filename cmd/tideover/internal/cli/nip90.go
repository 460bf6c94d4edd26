package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// Exit codes of nip90 request, besides codeOwn.
const (
	codeJobFailed    = 1
	codeJobCanceled  = 2
	codeNotAccepted  = 3
	codeNoAnswer     = 4
	codeJobPartial   = 5
	codeUnreadable   = 6
	codeJobTimedOut  = 124
	shownText        = 300   // characters of a text from elsewhere on a line
	shownID, shownPK = 8, 12 // characters of an id, of a public key
)

func newNIP90(io Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nip90",
		Short: "Delegate tasks over Nostr, and watch it",
		Long: `Delegates tasks to whoever offers a service over Nostr (NIP-90): a request goes to
relays, the provider tells how it goes, and publishes the result. docs/nip90.md has
all of it.

Everything that is sent can be read by everybody.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNIP90Request(io), newNIP90Watch(io), newNIP90Keygen(io))
	return cmd
}

// readKey reads a secret key from where the flags say. Without one it is the zero
// key. A key itself is refused: what is on a command line everybody on the machine
// can read.
func readKey(ref, file string, redactor *secret.Redactor) (nostr.SecretKey, error) {
	var where secret.Ref
	flag := "--key"
	switch {
	case ref != "" && file != "":
		return nostr.SecretKey{}, errors.New("--key and --key-file: one of them is enough")
	case ref != "":
		var err error
		if where, err = secret.ParseRef(ref); err != nil {
			return nostr.SecretKey{}, errors.New("--key: want a reference such as ${env:NOSTR_KEY} or ${file:path}, and not the key itself, which others would see in the list of processes")
		}
	case file != "":
		flag, where = "--key-file", secret.Ref{Kind: "file", Name: file}
	default:
		return nostr.SecretKey{}, nil
	}
	text, err := secret.Resolver{Redactor: redactor}.Resolve(where, "")
	if err != nil {
		return nostr.SecretKey{}, fmt.Errorf("%s: %w", flag, err)
	}
	key, err := nostr.ParseSecretKey(strings.TrimSpace(text.Reveal()))
	if err != nil {
		return nostr.SecretKey{}, fmt.Errorf("%s: %w", flag, err)
	}
	return key, nil
}

// shortText is a text from elsewhere, for a place on a line.
func shortText(text string) string { return textfmt.ClipWithin(visible(text), shownText, "…") }

// shortKey is the beginning of a public key, for a place on a line.
func shortKey(npub string) string { return textfmt.ClipWithin(npub, shownPK, "…") }

// completeKinds offers the kind that requests usually have.
func completeKinds(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("kind", list([]string{fmt.Sprint(dvm.DefaultKind)}))
}
