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
)

func main() {
	section := flag.String("section", "durable", "what was measured: durable or waiting")
	notes := flag.String("notes", "", "file with explanations, to be inserted in the page")
	page := flag.String("o", "", "file with the page whose section is written; empty for none")
	flag.Parse()
	if err := run(os.Stdin, os.Stdout, *section, *notes, *page); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, section, notes, page string) error {
	r, err := parse(in)
	if err != nil {
		return err
	}
	write, ok := map[string]func(*results) string{"durable": (*results).durable, "waiting": (*results).waiting}[section]
	if !ok {
		return fmt.Errorf("there is no section %q", section)
	}
	text := write(r)
	if _, err := fmt.Fprint(out, text); err != nil || page == "" {
		return err
	}
	old, err := os.ReadFile(page)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	why, err := os.ReadFile(notes)
	if err != nil {
		return fmt.Errorf("notes: %w", err)
	}
	return os.WriteFile(page, []byte(compose(string(old), section, text, string(why))), 0o644)
}
