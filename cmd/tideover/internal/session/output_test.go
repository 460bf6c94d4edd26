package session_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/internal/secret"
)

// readAll reads the output after a position to its end.
func readAll(t *testing.T, l session.Logs, after string) (text, next string, lost bool) {
	t.Helper()
	for {
		part, err := l.Read("night", after)
		if err != nil {
			t.Fatal(err)
		}
		text, after, lost = text+part.Text, part.Next, lost || part.Lost
		if !part.More {
			return text, after, lost
		}
	}
}

// The output of a session is read in parts, also while its files are rotated. A reader that has missed
// output gets Lost.
func TestTheOutputIsReadPartByPart(t *testing.T) {
	t.Parallel()
	l := session.Logs{Dir: t.TempDir(), Redactor: new(secret.Redactor)}
	if text, next, _ := readAll(t, l, ""); text != "" || next != "" {
		t.Errorf("nothing was written, and %q was read; the next position is %q", text, next)
	}
	st, err := l.Open(&session.Spec{Name: "night"})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	line := strings.Repeat("ü", 511) + "\n" // 1023 bytes: parts end inside of characters
	lines := func(n int) string { return strings.Repeat(line, n) }
	write := func(text string) {
		if _, err := st.Stdout.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write(lines(1000))
	first, position, _ := readAll(t, l, "")
	if _, text, _ := strings.Cut(first, "\n"); text != lines(1000) {
		t.Fatalf("%d bytes were read, of %d", len(text), len(lines(1000)))
	}
	for range 3 { // 21 MB, in files of 10 MB
		write(lines(7000))
	}
	if text, _, lost := readAll(t, l, position); text != lines(21000) || lost {
		t.Errorf("%d bytes were read after the position, of %d; lost: %v", len(text), len(lines(21000)), lost)
	}
	files, err := filepath.Glob(filepath.Join(l.Dir, "*.log.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("nothing was put aside: %v", err)
	}
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, lost := readAll(t, l, position); !lost {
		t.Error("the file of the position is gone, and the reader does not learn it")
	}
	if _, err := l.Read("night", "x"); !errors.Is(err, session.ErrPosition) {
		t.Errorf("a position that is none: %v", err)
	}
}

// Plain text contains no colours, window titles or hidden text.
func TestOutputAsPlainText(t *testing.T) {
	t.Parallel()
	for output, want := range map[string]string{
		"\x1b[31mred\x1b[0m\r\n\tnext\r":       "red\n\tnext\n",
		"\x1b]0;owned\x07a\x1b]8;;x\x1b\\b":    "ab",
		"\x1b[?1049h\x1b(B\x1b=done\x08\u202e": "done",
	} {
		if got := session.PlainText(output); got != want {
			t.Errorf("PlainText(%q) = %q, want %q", output, got, want)
		}
	}
}

// Output goes to the file and to the watcher, with secrets redacted in the file.
func TestTeeKeepsTheOutput(t *testing.T) {
	t.Parallel()
	redactor := new(secret.Redactor)
	redactor.Add("hunter2-hunter2")
	l := session.Logs{Dir: t.TempDir(), Redactor: redactor}
	var out, errs bytes.Buffer
	open := l.Tee(func(*session.Spec) (session.Streams, error) {
		return session.Streams{Stdout: &out, Stderr: &errs, Close: func() error { return nil }}, nil
	})
	st, err := open(&session.Spec{Name: "night"})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = st.Stdout.Write([]byte("out hunter2-hunter2\n"))
	_, _ = st.Stderr.Write([]byte("err\n"))
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	text, _, _ := readAll(t, l, "")
	if !strings.Contains(text, "out ***\n") || !strings.Contains(text, "err\n") || out.String() != "out hunter2-hunter2\n" || errs.String() != "err\n" {
		t.Errorf("the file has %q; passed on were %q and %q", text, out.String(), errs.String())
	}
}
