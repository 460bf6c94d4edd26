// Report reads the measurements of run.sh or waiting.sh from standard input,
// prints them, and writes them as a section of a page of the documentation.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/tideover/tideover/internal/benchreport"
)

func main() {
	section := flag.String("section", "durable", "what was measured: durable or waiting")
	benchreport.Main(func(in io.Reader, out io.Writer, notes, page string) error {
		return run(in, out, *section, notes, page)
	})
}

func run(in io.Reader, out io.Writer, section, notes, page string) error {
	r, err := benchreport.Parse(in)
	if err != nil {
		return err
	}
	write, ok := map[string]func(*benchreport.Results) string{"durable": durable, "waiting": waiting}[section]
	if !ok {
		return fmt.Errorf("there is no section %q", section)
	}
	text := write(r)
	old, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		_, _ = io.WriteString(out, text) // the measurement took long
		return err
	}
	whole := func(why string) string { return compose(string(old), section, text, why) }
	return benchreport.Publish(out, text, whole, notes, page)
}
