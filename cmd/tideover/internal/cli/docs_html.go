package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/cmd/tideover/internal/docsite"
	"github.com/tideover/tideover/internal/textfmt"
)

const docsLong = `Writes the documentation into a folder, as HTML with a search. It works without a
server: open index.html in a browser, or copy the folder to any web server. A running
'tideover serve' or 'tideover gateway' has the same pages at /docs.`

// newDocs returns the command that writes the documentation. It is hidden, because only packagers
// need it.
func newDocs(io Streams) *cobra.Command {
	return &cobra.Command{
		Use:    "docs DIR",
		Short:  "Write the documentation as HTML",
		Long:   docsLong,
		Hidden: true,
		Args:   exactlyOne("folder"),
		RunE: func(_ *cobra.Command, args []string) error {
			pages, err := docsite.Write(args[0])
			if err == nil {
				fmt.Fprintf(io.Err, "tideover: wrote %s to %s\n", textfmt.Plural(pages, "page"), args[0])
			}
			return err
		},
	}
}
