package cli

import (
	"errors"
	"slices"

	"github.com/spf13/cobra"
)

// Run executes the command line args and returns how the process must end.
func Run(args []string, io Streams) Exit {
	root := newRoot(io)
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return Exit{}
	}
	if exit, ok := errors.AsType[exitError](err); ok {
		exit.Code = exitCode(cmd, exit.Code)
		return Exit(exit)
	}
	return Exit{Code: printError(io.Err, cmd, args, err)}
}

func newRoot(io Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "tideover",
		Short: "Retries commands, API calls and workflows until they succeed",
		Long: `tideover retries commands, API calls and workflows with the right delays, until they
succeed or another attempt is pointless.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       thisBuild().String(),
	}
	root.SetIn(io.In)
	root.SetOut(io.Out)
	root.SetErr(io.Err)
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(newExec(io), newPlan(io), newAdvise(io), newDetect(io), newWatch(io), newNotify(io), newServe(io), newGateway(io), newConfig(io), newSchema(io), newVersion(io), newPolicyHelp(), newServersHelp(), newGuard())
	root.AddCommand(newRun(io), newRuns(io), newShow(io), newRetry(io), newCancel(io), newUndo(io), newWake(io), newSignal(io), newCallback(io), newApprove(io), newReject(io), newAnswer(io), newDead(io), newEvents(io),
		newWorkflows(io), newSchedules(io), newStatus(io), newBackup(io), newSessions(io), newProviders(io), newRequests(io), newCluster(io), newDoctor(io), newMove(io), newHealth(io), newMan(), newDocs(io))
	root.AddCommand(newChaos(io), newSim(io), newNIP90(io), newInit(io))
	improveUsageErrors(root)
	groupCommands(root)
	return root
}

// commandGroups has the headings of the root command's help, with the commands under each.
var commandGroups = []struct {
	title string
	verbs []string
}{
	{"Run a command:", []string{"exec", "watch", "detect"}},
	{"Run a server:", []string{"serve", "gateway"}},
	{"Work with a server:", []string{
		"run", "runs", "show", "events", "dead", "retry", "cancel", "undo", "wake", "signal", "callback", "approve", "reject", "answer", "workflows", "schedules", "sessions", "providers", "requests", "nip90",
	}},
	{"Operate a server:", []string{"status", "health", "doctor", "cluster", "backup", "move", "notify"}},
	{"Simulate and test:", []string{"plan", "advise", "sim", "chaos"}},
	{"Set up:", []string{"init", "config", "schema", "completion", "version", "help"}},
}

// groupCommands puts the commands under their headings.
func groupCommands(root *cobra.Command) {
	for _, g := range commandGroups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, cmd := range root.Commands() {
			if slices.Contains(g.verbs, cmd.Name()) {
				cmd.GroupID = g.title
			}
		}
	}
}
