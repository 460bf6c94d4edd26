// Report reads the measurements of run.sh from standard input, prints them, and
// writes them as a page of the documentation.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
)

func main() {
	notes := flag.String("notes", "", "file with explanations, to be put at the end of the page")
	page := flag.String("o", "", "file for the page; empty for none")
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
	text := r.text()
	if _, err := fmt.Fprint(out, text); err != nil || page == "" {
		return err
	}
	why, err := os.ReadFile(notes)
	if err != nil {
		return fmt.Errorf("notes: %w", err)
	}
	return os.WriteFile(page, []byte(compose(text, string(why))), 0o644)
}
