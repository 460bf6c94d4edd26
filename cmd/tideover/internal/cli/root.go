package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
)

// Streams are the standard streams. They are files because a command that we
// run inherits them.
type Streams struct {
	In, Out, Err *os.File
}

// codeOwn is the exit code for errors of our own, as opposed to those of a
// command that we ran.
const codeOwn = 125

// Exit is how the program is to end.
type Exit struct {
	Code   int
	Signal syscall.Signal // what to die of; 0 means to exit with Code
}

// Now ends the program.
func (e Exit) Now() {
	if e.Signal != 0 {
		process.Die(e.Signal)
	}
	os.Exit(e.Code)
}

// exitError ends the program, and prints nothing.
type exitError Exit

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", e.Code) }

// Run runs the command line and returns how the program is to end.
func Run(args []string, io Streams) Exit {
	root := newRoot(io)
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return Exit{}
	}
	if exit, ok := errors.AsType[exitError](err); ok {
		return Exit(exit)
	}
	if c, ok := errors.AsType[*codedError](err); ok {
		fmt.Fprintf(io.Err, "tideover: %s\n", visibleLines(c.Error()))
		return Exit{Code: c.code}
	}
	see := cmd.CommandPath() + " --help"
	if text := err.Error(); strings.Contains(text, "--policy: ") || strings.Contains(text, `policy "`) {
		see = "tideover help policy"
	}
	fmt.Fprintf(io.Err, "tideover: %s\nSee '%s'.\n", visibleLines(err.Error()), see)
	return Exit{Code: codeOwn}
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
	root.AddCommand(newExec(io), newPlan(io), newAdvise(io), newDetect(io), newWatch(io), newNotify(io), newServe(io), newGateway(io), newConfig(io), newSchema(io), newVersion(io), newPolicyHelp(), newGuard())
	root.AddCommand(newRun(io), newRuns(io), newShow(io), newRetry(io), newCancel(io), newWake(io), newDead(io), newEvents(io),
		newWorkflows(io), newSchedules(io), newStatus(io), newBackup(io), newSessions(io), newProviders(io), newCluster(io), newDoctor(io), newMove(io), newHealth(io), newMan())
	root.AddCommand(newChaos(io), newSim(io), newNIP90(io), newInit(io))
	understand(root)
	groupVerbs(root)
	return root
}
