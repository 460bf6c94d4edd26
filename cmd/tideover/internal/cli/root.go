package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// Streams are the standard streams. They are files because a command that we
// run inherits them.
type Streams struct {
	In, Out, Err *os.File
}

// codeOwn is the exit code for errors of our own, as opposed to those of a
// command that we ran.
const codeOwn = 125

// exitError ends the program with a code, and prints nothing.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// Run runs the command line and returns the exit code.
func Run(args []string, io Streams) int {
	root := newRoot(io)
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return 0
	}
	if code, ok := errors.AsType[exitError](err); ok {
		return int(code)
	}
	see := cmd.CommandPath() + " --help"
	if strings.Contains(err.Error(), "policy") {
		see = "tideover help policy"
	}
	fmt.Fprintf(io.Err, "tideover: %v\nSee '%s'.\n", err, see)
	return codeOwn
}

func newRoot(io Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "tideover",
		Short: "Gets commands, calls and workflows through failure",
		Long: `tideover gets things through failure: it retries, with the right waits, until
they succeed or it is pointless to go on.`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       thisBuild().String(),
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(io.In)
	root.SetOut(io.Out)
	root.SetErr(io.Err)
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(newExec(io), newPlan(io), newVersion(io), newPolicyHelp())
	return root
}
