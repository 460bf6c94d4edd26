// Report reads the measurements of run.sh or waiting.sh from standard input,
// prints them, and writes them into a section of a page of the documentation.
package main

import (
	"flag"
	"fmt"
	"io"
	"strings"

	"github.com/tideover/tideover/internal/benchreport"
)

func main() {
	section := flag.String("section", "durable", "what was measured: durable or waiting")
	benchreport.Main(func(in io.Reader, out io.Writer, page string) error { return run(in, out, *section, page) })
}

func run(in io.Reader, out io.Writer, section, page string) error {
	r, err := benchreport.Parse(in)
	if err != nil {
		return err
	}
	write, ok := map[string]func(*benchreport.Results) string{"durable": durable, "waiting": waiting}[section]
	if !ok {
		return fmt.Errorf("there is no section %q", section)
	}
	return benchreport.Publish(out, page, benchreport.Section{Name: section, Text: write(r)})
}

func setting(r *benchreport.Results, command string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "- %s, %s, %s, %s, %s, %s, %s rounds\n", r.About["date"], r.About["go"], r.About["cpu"], r.About["memory"],
		r.About["kernel"], r.About["disk"], r.About["rounds"])
	if len(r.Modules) > 0 {
		fmt.Fprintf(&b, "- systems and libraries:\n  - %s\n", strings.Join(r.Modules, "\n  - "))
	}
	fmt.Fprintf(&b, "- load average at the start and before the rounds: %s (measuring raises it)\n", strings.Join(r.Loads, ", "))
	fmt.Fprintf(&b, "- to reproduce: `%s`\n", command)
	return b.String()
}
