package oneline

import (
	"errors"
	"io"
	"io/fs"
	"testing"
)

func TestErrorJoinsTheLinesAndKeepsTheProblems(t *testing.T) {
	t.Parallel()
	err := Error(errors.Join(io.EOF, fs.ErrExist))
	if got, want := err.Error(), "EOF; file already exists"; got != want {
		t.Errorf("Error() = %q, want %q", got, want)
	}
	if !errors.Is(err, io.EOF) || !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v does not unwrap to both problems", err)
	}
}

func TestErrorLeavesOneLineAlone(t *testing.T) {
	t.Parallel()
	if err := Error(io.EOF); err != io.EOF {
		t.Errorf("Error(io.EOF) = %#v", err)
	}
	if err := Error(nil); err != nil {
		t.Errorf("Error(nil) = %v", err)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	if got := Text("one\ntwo\n"); got != "one; two; " {
		t.Errorf("Text() = %q", got)
	}
}
