package cli

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/lockfile"
)

const sessionsRemoveLong = `Removes what a watch that does not run has left: its folder, with the history of the
session. On a terminal you are asked first; elsewhere this needs --yes.

A session that is being watched must be stopped first. One of serve goes with its
entry in the configuration.`

func newSessionsRemove(io Streams) *cobra.Command {
	o := &sessionsOptions{remote: remote{io: io}}
	var yes bool
	cmd := &cobra.Command{
		Use: "rm [flags] NAME", Aliases: []string{"remove"}, Short: "Remove what a watch has left", Long: sessionsRemoveLong,
		Example: "  tideover sessions rm claude-1f2e3d\n  tideover sessions rm claude-1f2e3d --yes",
		Args:    one("session"), ValidArgsFunction: completeIdle,
		RunE: func(cmd *cobra.Command, args []string) error {
			ask := &bulkOptions{remote: o.remote, yes: yes}
			return o.ask(cmd, func(ctx context.Context, places []*place) error { return o.remove(ctx, places, args[0], ask) })
		},
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	o.command(cmd)
	return cmd
}

func completeIdle(_ *cobra.Command, args []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	if len(args) == 0 {
		for _, s := range idleSessions(ctx, watchFolders(""), nil) {
			names = append(names, cobra.CompletionWithDesc(visible(s.Name), visible(s.State)))
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (o *sessionsOptions) remove(ctx context.Context, places []*place, name string, ask *bulkOptions) error {
	all, unwatched, _, err := o.everything(ctx, places)
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
		return &control.Error{
			Status: http.StatusConflict, Code: control.CodeAmbiguous, Message: fmt.Sprintf("%q has left %d folders", name, len(folders)),
			Hint: "remove one of them yourself", Candidates: folders,
		}
	}
	if err := ask.confirm(ctx, "remove", "session "+name+" with its history"); err != nil {
		return err
	}
	if err := removeFolder(folders[0]); err != nil {
		return err
	}
	if o.json {
		return o.printJSON(map[string]string{"removed": folders[0]})
	}
	return o.say("removed %s", folders[0])
}

// cantRemove says why there is nothing of the name to remove.
func cantRemove(all []located, name string) error {
	var names []string
	for _, s := range all {
		names = append(names, s.Name)
		if s.Name != name {
			continue
		}
		p := &control.Error{Status: http.StatusConflict, Code: control.CodeState, Message: fmt.Sprintf("session %s is being watched", name), Hint: "end its watch first"}
		if s.In == inServe {
			p.Message, p.Hint = fmt.Sprintf("session %s is kept by serve", name), "remove it from the configuration"
		}
		return p
	}
	return unknownSession(name, names)
}

// removeFolder removes the folder of a watch. It holds the lock of its engine
// meanwhile, so that no other begins in a folder that is half gone.
func removeFolder(folder string) error {
	f, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return &codedError{err, codeOwn}
	}
	defer f.Close()
	held, err := lockfile.Try(f)
	if err != nil {
		return &codedError{fmt.Errorf("lock %s: %w", f.Name(), err), codeOwn}
	}
	if held {
		return &codedError{fmt.Errorf("session %s is being watched: end its watch first", filepath.Base(folder)), codeOwn}
	}
	if err := os.RemoveAll(folder); err != nil {
		return &codedError{err, codeOwn}
	}
	return nil
}
