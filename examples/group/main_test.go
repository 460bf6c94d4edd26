package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test's own binary be the acceptors' process, and fails when
// a goroutine is left behind.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == verbAcceptor {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	code := m.Run()
	if left := leaked(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

// leaked returns the stacks of goroutines that run our code, after they have had
// time to end.
func leaked() string {
	var left []string
	for range 100 {
		buf := make([]byte, 1<<20)
		left = left[:0]
		for _, s := range strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")[1:] {
			if strings.Contains(s, "examples/group") || strings.Contains(s, "os/exec") {
				left = append(left, s)
			}
		}
		if len(left) == 0 {
			return ""
		}
		time.Sleep(20 * time.Millisecond)
	}
	return strings.Join(left, "\n\n")
}

// generous is a deadline for what must happen, not for how fast.
func generous(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestTheDemonstration(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"-devices", "6"}, &out, &errs); code != 0 {
		t.Fatalf("exit %d: %s%s", code, &out, &errs)
	}
	for _, want := range []string{"acceptor 0 is killed", "acceptor 0 is back", "welcome device 6 to epoch 7", "all 6 devices committed", "epoch  7: add device 6 (on 6)"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &out)
		}
	}
}

func TestFlags(t *testing.T) {
	for _, tt := range []struct {
		args string
		code int
		says string
	}{
		{"-h", 0, "starts the acceptors as processes"},
		{"-nonsense", 2, "not defined"},
		{"dance", 1, `unknown verb "dance"`},
		{"-policy never", 1, "-policy"},
		{"-devices 0 -acceptors 99", 1, "-devices"},
		{"-devices 0 -acceptors 99", 1, "-acceptors"},
		{"-scale -1", 1, "scale"},
		{"acceptor", 1, "-dir: missing"},
		{"acceptor -h", 0, "-listen"},
	} {
		var out, errs bytes.Buffer
		if code := run(strings.Fields(tt.args), &out, &errs); code != tt.code || !strings.Contains(errs.String(), tt.says) {
			t.Errorf("group %s: exit %d and %q, want %d and %q", tt.args, code, &errs, tt.code, tt.says)
		}
	}
	var out, errs bytes.Buffer
	if code := run([]string{"-policy", "contention budget=ratio(0.1)"}, &out, &errs); code != 1 || !strings.Contains(errs.String(), "budget") {
		t.Errorf("a budget: exit %d and %q, want it refused", code, &errs)
	}
}
