// Report reads the measurements of run.sh from standard input, prints them, and
// writes them as a page of the documentation.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/tideover/tideover/internal/benchreport"
)

func main() { benchreport.Main(run) }

func run(in io.Reader, out io.Writer, notes, page string) error {
	r, err := benchreport.Parse(in)
	if err != nil {
		return err
	}
	text := report(r)
	if _, err := fmt.Fprint(out, text); err != nil || page == "" {
		return err
	}
	why, err := benchreport.Notes(notes)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(intro+text+why), 0o644)
}
