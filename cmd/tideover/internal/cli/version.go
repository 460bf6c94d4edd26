package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// build describes how the binary was built.
type build struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"` // the source tree had uncommitted changes
	Go       string `json:"go"`
	System   string `json:"system"`
}

func thisBuild() build {
	b := build{Version: "devel", Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b build) String() string {
	s := "tideover " + b.Version + optional(" ", b.Revision[:min(len(b.Revision), 12)], "")
	if b.Modified {
		s += " (modified)"
	}
	return s + ", " + b.Go + ", " + b.System
}

func newVersion(io Streams) *cobra.Command {
	p := &resultPrinter{io: io}
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Prints the version of tideover, the source revision, and the Go version and platform.",
		Example: "  tideover version --json | jq -r .version",
		Args:    noArguments,
		RunE:    func(*cobra.Command, []string) error { return p.printJSONOrLine(thisBuild(), "%s", thisBuild()) },
	}
	cmd.Flags().BoolVarP(&p.json, "json", "j", false, "print JSON")
	return cmd
}
