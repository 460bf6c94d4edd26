// Package oneline puts errors and texts of several lines on one line.
package oneline

import "strings"

// Error returns the message of an error on one line: the messages of joined errors with
// semicolons between them.
func Error(err error) string { return Text(err.Error()) }

// Text returns the text with a semicolon and a space in place of each line break.
func Text(s string) string { return strings.ReplaceAll(s, "\n", "; ") }
