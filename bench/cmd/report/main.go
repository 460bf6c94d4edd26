// Report reads the measurements of bench/run.sh from standard input, prints the
// ratios to the baselines, and writes them as a page of the documentation.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	notes := flag.String("notes", "", "file with explanations, to be inserted in the page")
	page := flag.String("o", "", "file to write the page to; empty for none")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *notes, *page); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, notes, page string) error {
	r, err := parse(in)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprint(out, r.summary(), "\n", r.tables()); err != nil || page == "" {
		return err
	}
	var text []byte
	if notes != "" {
		if text, err = os.ReadFile(notes); err != nil {
			return fmt.Errorf("notes: %w", err)
		}
	}
	return os.WriteFile(page, []byte(r.page(string(text))), 0o644)
}
