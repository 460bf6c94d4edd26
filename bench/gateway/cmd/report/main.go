// Report reads the measurements of run.sh from standard input, prints them, and
// writes them as a page of the documentation.
package main

import (
	"io"

	"github.com/tideover/tideover/internal/benchreport"
)

func main() { benchreport.Main(run) }

func run(in io.Reader, out io.Writer, notes, page string) error {
	r, err := benchreport.Parse(in)
	if err != nil {
		return err
	}
	text := report(r)
	return benchreport.Publish(out, text, func(why string) string { return intro + text + why }, notes, page)
}
