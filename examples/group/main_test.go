package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testwait"
)

// asProgram is set for a process of this test binary that runs the program.
const asProgram = "GROUP_AS_PROGRAM"

// TestMain lets the test binary run the acceptors, and fails if a goroutine is
// left.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == verbAcceptor || os.Getenv(asProgram) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	code := m.Run()
	if code == 0 {
		if left := testwait.Goroutines("examples/group", "os/exec"); left != "" {
			fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", left)
			code = 1
		}
	}
	os.Exit(code)
}

func TestTheDemonstration(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"-devices", "6", "-policy", "contention attempts=100000 attempt-timeout=2s total-timeout=1h"}, &out, &errs); code != 0 {
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
		{"-h", 0, "starts the acceptors as separate"},
		{"-nonsense", 2, "not defined"},
		{"dance", 1, `unknown verb "dance"`},
		{"-policy never", 1, "-policy"},
		{"-devices 0 -acceptors 99", 1, "-devices"},
		{"-devices 0 -acceptors 99", 1, "-acceptors"},
		{"-scale -1", 1, "scale"},
		{"acceptor", 1, "-dir: missing"},
		{"acceptor -id -5", 1, "-id: -5 is not between 0 and 63"},
		{"acceptor -id -5", 1, "-dir: missing"},
		{"acceptor -id 64 -dir x", 1, "-id: 64 is not between 0 and 63"},
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

// The demonstration leaves nothing behind, in any way that it ends.
func TestTheDemonstrationCleansUp(t *testing.T) {
	const endless = "fixed(1h) attempts=9 total-timeout=9h" // a device that loses waits for longer than the test
	for _, tt := range []struct {
		name   string
		policy string
		says   string
		end    func(*exec.Cmd, io.Closer) error
	}{
		{"the reader of its output has gone", "contention", "group: write /dev/stdout: broken pipe\n", func(_ *exec.Cmd, output io.Closer) error { return output.Close() }},
		{"it is interrupted", endless, "group: interrupt signal received\n", func(c *exec.Cmd, _ io.Closer) error { return c.Process.Signal(os.Interrupt) }},
		{"it gets SIGTERM", endless, "group: terminated signal received\n", func(c *exec.Cmd, _ io.Closer) error { return c.Process.Signal(syscall.SIGTERM) }},
		{"its terminal has gone", endless, "group: hangup signal received\n", func(c *exec.Cmd, _ io.Closer) error { return c.Process.Signal(syscall.SIGHUP) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.CommandContext(testwait.Context(t), os.Args[0], "-devices", "50", "-policy", tt.policy)
			cmd.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+dir)
			var errs bytes.Buffer
			cmd.Stderr = &errs
			output, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := output.Read(make([]byte, 1)); err != nil { // it has begun
				t.Fatal(err)
			}
			if err := tt.end(cmd, output); err != nil {
				t.Fatal(err)
			}
			var reader sync.WaitGroup
			reader.Go(func() { _, _ = io.Copy(io.Discard, output) })
			defer reader.Wait()
			if err := cmd.Wait(); err == nil || errs.String() != tt.says {
				t.Errorf("it ends with %v and says %q, want %q", err, &errs, tt.says)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
				t.Errorf("%v is left: %v", left, err)
			}
		})
	}
}
