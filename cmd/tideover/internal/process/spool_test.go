//go:build unix

package process

import (
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
)

// attemptInput returns the input of one attempt, up to limit bytes.
func attemptInput(t *testing.T, in *input, limit int64) string {
	t.Helper()
	fd, err := in.open()
	if err != nil {
		t.Fatal(err)
	}
	dup, err := syscall.Dup(int(fd))
	if err != nil {
		t.Fatal(err)
	}
	child := os.NewFile(uintptr(dup), "child")
	defer child.Close()
	in.started()
	data, err := io.ReadAll(io.LimitReader(child, limit))
	if err != nil {
		t.Fatal(err)
	}
	in.finish()
	return string(data)
}

// piped returns the input of a command whose standard input is a pipe with the text.
func piped(t *testing.T, text string, limit int64) *input {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.WriteString(text)
		_ = w.Close()
	}()
	t.Cleanup(func() { r.Close(); <-done })
	in, err := newInput(Config{Stdin: r, StdinLimit: limit})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

func TestSpoolReplaysWhatWasReadAndTheRest(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("0123456789", 50000)
	in := piped(t, text, 1<<20)
	for _, n := range []int64{0, 1, 100000, 70000, 1 << 20, 1 << 20} {
		want := text[:min(n, int64(len(text)))]
		if got := attemptInput(t, in, n); got != want {
			t.Fatalf("an attempt that reads %d bytes got %d, or other ones", n, len(got))
		}
	}
	if err := in.lost(); err != nil {
		t.Error(err)
	}
	if err := in.close(); err != nil {
		t.Error(err)
	}
}

func TestSpoolBeyondItsLimitStreamsOn(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("0123456789", 50000)
	in := piped(t, text, 1000)
	if got := attemptInput(t, in, 1<<20); got != text {
		t.Errorf("the attempt got %d of %d bytes", len(got), len(text))
	}
	if !errors.Is(in.lost(), ErrInputTooLong) || in.spool.file != nil {
		t.Errorf("lost = %v, file = %v; want too long, and nothing kept", in.lost(), in.spool.file)
	}
}

func TestSpoolAtItsLimitIsReplayed(t *testing.T) {
	t.Parallel()
	in := piped(t, "0123456789", 10)
	for range 2 {
		if got := attemptInput(t, in, 100); got != "0123456789" {
			t.Errorf("got %q", got)
		}
	}
}

// Another reader of the same pipe takes the data between poll and read.
func TestReadThatBlocksDoesNotOutliveTheAttempt(t *testing.T) {
	t.Parallel()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	in, err := newInput(Config{Stdin: r, StdinLimit: 100})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := in.open(); err != nil {
		t.Fatal(err)
	}
	f := in.feed
	done := make(chan struct{})
	go func() { // as feed.run does if the pipe is readable
		defer close(done)
		if data, err := f.read(); err == nil {
			t.Errorf("read %q from an empty pipe", data)
		}
	}()
	close(f.quit)
	<-done
	f.quit = make(chan struct{})
	in.started()
	in.finish()
	if _, err := w.WriteString("late"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for range 2 {
		if got := attemptInput(t, in, 100); got != "late" {
			t.Errorf("the next attempt got %q, want what the read that blocked has got", got)
		}
	}
}

func TestSpoolThatCannotBeWrittenIsReported(t *testing.T) {
	t.Setenv("TMPDIR", "/no/such/folder")
	in := piped(t, "text", 100)
	if got := attemptInput(t, in, 100); got != "text" {
		t.Errorf("got %q", got)
	}
	if in.lost() == nil {
		t.Error("nothing was kept, and nothing is said about it")
	}
}
