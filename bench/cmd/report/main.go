// Report reads the measurements of bench/run.sh from standard input, prints the
// ratios to the baselines, and writes them as a page of the documentation.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/tideover/tideover/internal/benchreport"
)

func main() { benchreport.Main(run) }

func run(in io.Reader, out io.Writer, notes, page string) error {
	r, err := parse(in)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(out, r.summary(), "\n", r.tables()); err != nil || page == "" {
		return err
	}
	why, err := benchreport.Notes(notes)
	if err != nil {
		return err
	}
	return os.WriteFile(page, []byte(r.page(why)), 0o644)
}
