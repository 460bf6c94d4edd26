//go:build unix

package process

import (
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"
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
