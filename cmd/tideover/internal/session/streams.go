package session

import (
	"io"
	"os"
)

// Pass is [Runner.Open] for a process that is not on a terminal: the command
// reads our standard input, once, and its output is passed on.
func Pass(stdin *os.File, stdout, stderr io.Writer) func(*Spec) (Streams, error) {
	first := true
	return func(*Spec) (Streams, error) {
		st := Streams{Stdout: stdout, Stderr: stderr, Close: func() error { return nil }}
		if first && stdin != nil {
			// What was in it is gone after the first command, and a session that is
			// resumed has its own memory of it.
			st.Stdin, first = stdin, false
		}
		return st, nil
	}
}
