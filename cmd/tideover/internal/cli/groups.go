package cli

import (
	"slices"

	"github.com/spf13/cobra"
)

// verbGroups are the headings under which the help lists the verbs. A list of all, by
// the alphabet, would be one that nobody reads.
var verbGroups = []struct {
	title string
	verbs []string
}{
	{"Run something now:", []string{"exec", "watch", "detect"}},
	{"Run a server:", []string{"serve", "gateway"}},
	{"Work with a server:", []string{
		"run", "runs", "show", "events", "dead", "retry", "cancel", "wake", "workflows", "schedules", "sessions", "providers", "nip90",
	}},
	{"Look after a server:", []string{"status", "health", "doctor", "cluster", "backup", "move", "notify"}},
	{"Think ahead, and try out:", []string{"plan", "advise", "sim", "chaos"}},
	{"Set up:", []string{"init", "config", "schema", "completion", "version", "help"}},
}

// groupVerbs puts the verbs under their headings.
func groupVerbs(root *cobra.Command) {
	for _, g := range verbGroups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, cmd := range root.Commands() {
			if slices.Contains(g.verbs, cmd.Name()) {
				cmd.GroupID = g.title
			}
		}
	}
}
