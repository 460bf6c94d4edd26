// Package oneline writes an error that lists several problems in one line, for
// use inside a sentence or a log line.
package oneline

import "strings"

// Error returns err with the lines of its text joined by semicolons. The result
// unwraps to err, so that errors.Is and errors.As find every problem. nil stays nil.
func Error(err error) error {
	if err == nil {
		return nil
	}
	if text := err.Error(); strings.Contains(text, "\n") {
		return &joined{Text(text), err}
	}
	return err
}

// joined is an error whose text is in one line.
type joined struct {
	text string
	err  error
}

func (j *joined) Error() string { return j.text }
func (j *joined) Unwrap() error { return j.err }

// Text returns the text with a semicolon and a space in place of each line break.
func Text(s string) string { return strings.ReplaceAll(s, "\n", "; ") }
