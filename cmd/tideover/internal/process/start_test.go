//go:build unix

package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
)

func TestEnvironSetsEachVariableOnce(t *testing.T) {
	t.Parallel()
	base := []string{"A=1", "AB=2", "B=3", "odd", "A=4"}
	got := environ(base, []string{"A=5", "C="})
	if want := []string{"AB=2", "B=3", "odd", "A=5", "C="}; !slices.Equal(got, want) {
		t.Errorf("environ(%q) = %q, want %q", base, got, want)
	}
	if base[0] != "A=1" {
		t.Errorf("the base was changed: %q", base)
	}
}

func TestStartCode(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]int{
		fs.ErrNotExist: CodeNotFound, syscall.ENOENT: CodeNotFound,
		syscall.EACCES: CodeNotExecutable, syscall.ENOEXEC: CodeNotExecutable, syscall.E2BIG: CodeNotExecutable,
		syscall.EAGAIN: CodeInternal, syscall.ENOMEM: CodeInternal,
	} {
		if got := startCode(err); got != want {
			t.Errorf("startCode(%v) = %d, want %d", err, got, want)
		}
	}
}

func TestOnlyABusyProgramIsWorthAnotherStart(t *testing.T) {
	t.Parallel()
	for err, want := range map[error]bool{syscall.ETXTBSY: true, syscall.EACCES: false, syscall.ENOENT: false, syscall.EAGAIN: false} {
		if got := (&StartError{CodeNotExecutable, "x", err}).Transient(); got != want {
			t.Errorf("Transient() of %v = %v, want %v", err, got, want)
		}
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int{
		"sh": 0, "/bin/sh": 0, "no-such-command": CodeNotFound, "/no/such/command": CodeNotFound, "/": CodeNotExecutable, "/dev/null": CodeNotExecutable,
	} {
		_, err := lookup(name)
		got := 0
		if e, ok := errors.AsType[*StartError](err); ok {
			got = e.Code
		}
		if got != want {
			t.Errorf("lookup(%q): code %d, want %d; %v", name, got, want, err)
		}
	}
}

func TestStartErrorsSayWhatMayHelp(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script, binary := filepath.Join(dir, "script"), filepath.Join(dir, "binary")
	for path, text := range map[string]string{script: "echo hello\n", binary: "\x00\x01\x02"} {
		testfile.WriteScript(t, path, text)
	}
	for name, want := range map[string]string{
		"cd": "not found: it is a shell builtin: use sh -c 'cd ...'", "ls | wc": "the command is not run by a shell", "no-such-command": "not found",
		dir: "is a folder", script: "the script has no #! line", binary: "exec format error",
	} {
		s, err := New(Config{Args: []string{name}, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Run(t.Context())
		if e, ok := errors.AsType[*StartError](err); !ok || !strings.Contains(err.Error(), want) || e.Transient() {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if strings.Contains(fmt.Sprint(err), "#!") != (name == script) {
			t.Errorf("%s: %v", name, err)
		}
		_ = s.Close()
	}
}

func TestStartable(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	testfile.WriteScript(t, filepath.Join(dir, "job"), "#!/bin/sh\n")
	if err := os.WriteFile(filepath.Join(dir, "text"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"./job": "", "sh": "", "./text": "start ./text: not executable", "./none": "start ./none: not found", "job": "start job: not found",
	} {
		got := ""
		if err := Startable(dir, name); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("Startable(dir, %q) = %q, want %q", name, got, want)
		}
	}
}
