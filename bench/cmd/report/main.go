// Report reads the measurements of bench/run.sh from standard input, prints the
// ratios to the baselines, and writes them as a page of the documentation.
package main

import (
	"io"

	"github.com/tideover/tideover/internal/benchreport"
)

func main() { benchreport.Main(run) }

func run(in io.Reader, out io.Writer, notes, page string) error {
	r, err := parse(in)
	if err != nil {
		return err
	}
	return benchreport.Publish(out, r.summary()+"\n"+r.tables(), r.page, notes, page)
}
