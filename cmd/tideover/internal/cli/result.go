package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/tideover/tideover/internal/console/control"
)

// resultPrinter prints the result of a command.
type resultPrinter struct {
	io   Streams
	json bool // --json is given
}

// printRendered prints a value: with --json as a line of JSON, otherwise the lines that render returns.
func (p *resultPrinter) printRendered(v any, render func(*screen) []string) error {
	if p.json {
		return p.printJSON(v)
	}
	s := screenOf(p.io.Out)
	_, err := p.io.Out.WriteString(strings.Join(render(&s), "\n") + "\n")
	return err
}

// printFetched prints a value like printRendered. If err is not nil, it prints nothing and returns
// err.
func printFetched[T any](p *resultPrinter, v T, err error, render func(T, *screen) []string) error {
	if err != nil {
		return err
	}
	return p.printRendered(v, func(s *screen) []string { return render(v, s) })
}

// printJSONOrLine prints a value: with --json as a line of JSON, otherwise as a line of text.
func (p *resultPrinter) printJSONOrLine(v any, format string, args ...any) error {
	if p.json {
		return p.printJSON(v)
	}
	return p.printLine(format, args...)
}

// printJSON prints a value as a line of JSON.
func (p *resultPrinter) printJSON(v any) error { return writeJSON(p.io.Out, v) }

// writeJSON writes a value as a line of JSON.
func writeJSON(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = w.Write(append(visibleJSON(text), '\n'))
	return err
}

// printLine prints a line to standard output, with control characters made visible.
func (p *resultPrinter) printLine(format string, args ...any) error {
	_, err := fmt.Fprintln(p.io.Out, visible(fmt.Sprintf(format, args...)))
	return err
}

// warnSilentShards warns that the list lacks the runs of shards that did not answer. It prints
// nothing if shards is empty.
func (p *resultPrinter) warnSilentShards(shards []int) {
	if text := control.Silent(shards); text != "" {
		p.warn("%s", text)
	}
}

// warnLines is warn for a text of several lines, such as an error with an excerpt of a file.
func (p *resultPrinter) warnLines(text string) {
	if p.json {
		p.warn("%s", text)
		return
	}
	fmt.Fprintf(p.io.Err, "tideover: warning: %s\n", visibleLines(text))
}

// warn prints a line to standard error: with --json as {"warning": {"message": "…"}}.
func (p *resultPrinter) warn(format string, args ...any) {
	if p.json {
		_ = writeJSON(p.io.Err, map[string]any{"warning": map[string]string{"message": fmt.Sprintf(format, args...)}})
		return
	}
	fmt.Fprintf(p.io.Err, "tideover: %s\n", visible(fmt.Sprintf(format, args...)))
}
