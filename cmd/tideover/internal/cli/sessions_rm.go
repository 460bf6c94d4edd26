package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/lockfile"
	"github.com/tideover/tideover/internal/console/control"
)

const sessionsRemoveLong = `Removes the state of a watch that is not running: its folder with the history of the
session. On a terminal you are asked for confirmation; in a script this needs --yes.

End the watch of a session that is being watched first. To remove a session of
serve, delete it from the configuration.`

func newSessionsRemove(io Streams) *cobra.Command {
	o := &sessionsOptions{remote: newRemote(io)}
	var yes bool
	cmd := &cobra.Command{
		Use: "rm [flags] NAME", Aliases: []string{"remove"}, Short: "Remove the state of a watch that is not running", Long: sessionsRemoveLong,
		Example: "  tideover sessions rm claude-1f2e3d\n  tideover sessions rm claude-1f2e3d --yes",
		Args:    exactlyOne("session"), ValidArgsFunction: completeUnwatched,
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.withHosts(cmd, func(ctx context.Context, hosts []*sessionHost) error {
				return removeSession(ctx, o, hosts, args[0], yes)
			})
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask for confirmation")
	return o.command(cmd)
}

func completeUnwatched(_ *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	if len(args) == 0 {
		for _, s := range unwatchedSessions(ctx, watchFolders(""), nil) {
			names = append(names, cobra.CompletionWithDesc(visible(s.Name), visible(s.State)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func removeSession(ctx context.Context, o *sessionsOptions, hosts []*sessionHost, name string, yes bool) error {
	all, unwatched, _, err := o.allSessions(ctx, hosts)
	if err != nil {
		return err
	}
	var folders []string
	for i := range unwatched {
		if unwatched[i].Name == name {
			folders = append(folders, unwatched[i].folder)
		}
	}
	switch len(folders) {
	case 0:
		return cantRemove(all, name)
	case 1:
	default:
		text := fmt.Sprintf("%q has %d folders", name, len(folders))
		problem := control.NewError(control.CodeAmbiguous, text, "remove one of them by hand")
		problem.Candidates = folders
		return problem
	}
	if err := o.confirm(ctx, yes, "remove", "session "+name+" with its history"); err != nil {
		return err
	}
	if err := removeFolder(folders[0]); err != nil {
		return &codedError{err, CodeOwn}
	}
	return o.printJSONOrLine(map[string]string{"removed": folders[0]}, "removed %s", folders[0])
}

// cantRemove returns the error for a session that can't be removed: it is being watched, runs in
// serve, or is unknown.
func cantRemove(all []hostedSession, name string) error {
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
		if s.Name != name {
			continue
		}
		if s.In == inServe {
			return control.NewError(control.CodeState, "session "+name+" runs in serve", "remove it from the configuration")
		}
		return control.NewError(control.CodeState, "session "+name+" is being watched", "end its watch first")
	}
	return unknownSession(name, names)
}

// removeFolder removes the folder of a watch. It holds the engine's lock until the end, so that no
// watch starts in a folder that is partly deleted.
func removeFolder(folder string) error {
	f, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	held, err := lockfile.Try(f)
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if held {
		return fmt.Errorf("session %s is being watched: end its watch first", filepath.Base(folder))
	}
	return os.RemoveAll(folder)
}
