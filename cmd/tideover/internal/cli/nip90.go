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

// Exit codes of nip90 request, besides codeOwn, and lengths of shortened texts.
const (
	codeJobFailed    = 1
	codeJobCanceled  = 2
	codeNotAccepted  = 3
	codeNoAnswer     = 4
	codeJobPartial   = 5
	codeUnreadable   = 6
	codeJobTimedOut  = 124
	shownText        = 300   // characters of a text from another party
	shownID, shownPK = 8, 12 // characters of an id, of a public key
)

func newNIP90(io Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "nip90",
		Short: "Delegate tasks to providers on Nostr (NIP-90)",
		Long: `Delegates tasks to providers on Nostr (NIP-90). A request is published to relays; the
provider publishes its progress and the result. See docs/nip90.md.

Requests and results are public: anyone can read them.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNIP90Request(io), newNIP90Watch(io), newNIP90Keygen(io))
	return cmd
}

// readKey reads a secret key from the reference or the file. It returns the zero key if both are
// empty. A key on the command line is rejected, because other users of the machine can see it in
// the list of processes.
func readKey(ref, file string, redactor *secret.Redactor) (key nostr.SecretKey, err error) {
	var where secret.Ref
	flag := "--key"
	switch {
	case ref != "" && file != "":
		return key, errors.New("--key and --key-file can't be used together: give one of them")
	case ref != "":
		if where, err = secret.ParseRef(ref); err != nil {
			return key, errors.New("--key: not a reference: want ${env:NOSTR_KEY} or ${file:path}; the key itself would be visible in the list of processes")
		}
	case file != "":
		flag, where = "--key-file", secret.Ref{Kind: "file", Name: file}
	default:
		return key, nil
	}
	text, err := secret.Resolver{Redactor: redactor}.Resolve(where, "")
	if err == nil {
		key, err = nostr.ParseSecretKey(strings.TrimSpace(text.Reveal()))
	}
	if err != nil {
		return nostr.SecretKey{}, fmt.Errorf("%s: %w", flag, err)
	}
	return key, nil
}

// shortText shortens a text from another party and makes control characters visible.
func shortText(text string) string { return textfmt.ClipWithin(visible(text), shownText, "…") }

// shortKey returns the beginning of a public key.
func shortKey(npub string) string { return textfmt.ClipWithin(npub, shownPK, "…") }

// completeKinds completes the usual kind of requests.
func completeKinds(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("kind", completeWords([]string{fmt.Sprint(dvm.DefaultKind)}))
}
