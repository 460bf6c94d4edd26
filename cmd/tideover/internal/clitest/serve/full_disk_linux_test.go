//go:build unix

package serve_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// smallDisk is a small file system that is mounted on the data folder of a server, in a separate
// mount namespace.
type smallDisk struct {
	t      *testing.T
	holder *exec.Cmd // a process that keeps the namespace alive
	data   string    // path of the data folder in the namespace
}

// newSmallDisk mounts a file system of this size. The test is skipped if that is not allowed.
func newSmallDisk(t *testing.T, data string, megabytes int) *smallDisk {
	t.Helper()
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	d := &smallDisk{t: t, data: data}
	d.holder = exec.CommandContext(testwait.Context(t), "sh", "-c", fmt.Sprintf("mount -t tmpfs -o size=%dm,mode=700 none %s && echo mounted && read end", megabytes, data))
	d.holder.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	in, err := d.holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := d.holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.holder.Start(); err != nil {
		t.Skipf("no mount namespace: %v", err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = d.holder.Wait()
	})
	if n, _ := out.Read(make([]byte, 10)); n == 0 {
		t.Skip("mounting a file system is not allowed")
	}
	return d
}

// path returns the path of a file on the disk for processes outside the namespace.
func (d *smallDisk) path(name string) string {
	return filepath.Join(fmt.Sprintf("/proc/%d/root", d.holder.Process.Pid), d.data, name)
}

// fill fills the disk.
func (d *smallDisk) fill() {
	d.t.Helper()
	f, err := os.OpenFile(d.path("ballast"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			if !errors.Is(err, syscall.ENOSPC) {
				d.t.Fatal(err)
			}
			size /= 2
		}
	}
	_ = f.Close() // the error of the last write is expected
}

// serve starts a server on the disk.
func (d *smallDisk) serve(file string) *clitest.Server {
	d.t.Helper()
	s := &clitest.Server{Background: &clitest.Background{T: d.t, Folder: filepath.Dir(file)}, File: file, Data: d.path(""), Log: new(clitest.SyncBuffer)}
	s.Cmd, s.Mark = clitest.Command(d.t, "serve", "--config", file, "--data", d.data, "--listen", "127.0.0.1:0")
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		d.t.Skip("needs nsenter")
	}
	s.Args = append([]string{"nsenter", "--mount", "--target", fmt.Sprint(d.holder.Process.Pid), s.Path}, s.Args[1:]...)
	s.Path = nsenter
	s.Stdout, s.Stderr = s.Log, s.Log
	s.Begin()
	s.AwaitReady()
	return s
}

// wantFewLines checks that a problem is logged at most once a minute.
//
// real clock: a slow machine may log it more often
func wantFewLines(t *testing.T, s *clitest.Server, since time.Time, message string) {
	t.Helper()
	if got, limit := strings.Count(s.Log.String(), message), 2+int(time.Since(since)/time.Minute); got > limit {
		t.Errorf("%q is logged %d times, want at most %d", message, got, limit)
	}
}

func TestAFullDiskStopsNothingForGood(t *testing.T) {
	t.Parallel()
	dir := clitest.ShortDir(t)
	file := filepath.Join(dir, "tideover.yaml")
	clitest.WriteFile(t, file, "version: 1\nworkflows:\n  hello:\n    steps:\n      - {id: say, run: [echo, hello]}\n")
	disk := newSmallDisk(t, filepath.Join(dir, "data"), 12)
	s := disk.serve(file)
	clitest.WantCode(t, s.RunCommand("run", "hello", "--wait", "--key", "first"), 0)
	disk.fill()
	began := time.Now()
	pending, _ := clitest.Command(t, "run", "hello", "--wait", "--key", "second", "--server", "unix:"+disk.path("tideover.sock"))
	refused := make(chan clitest.Outcome, 1)
	go func() { refused <- clitest.Finish(t, pending) }()
	fullSaid := func() bool {
		o := s.RunCommand("status")
		return strings.Contains(o.Out+o.Stderr, "no room for the log")
	}
	testwait.Until(t, "status says what is wrong", fullSaid)
	clitest.WantIn(t, "a run", s.RunCommand("show", "first").Out, "succeeded")
	wantFewLines(t, s, began, "can't store")
	second := testwait.Receive(t, "the start is refused while the server runs", refused)
	clitest.WantCode(t, second, 125)
	clitest.WantIn(t, "the refusal of a start", second.Stderr, "start hello: the log can't be written; the change may be stored when that works again")
	clitest.WantIn(t, "the refusal of a start", second.Stderr, "no room for the log")

	// The server starts on the full disk after a kill, and after an orderly stop.
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		s.Signal(sig)
		s.End()
		disk.fill()
		began = time.Now()
		s = disk.serve(file)
		testwait.Until(t, "status answers", func() bool { return s.RunCommand("status").Code == 0 })
		wantFewLines(t, s, began, "can't ")
	}

	if err := os.Remove(disk.path("ballast")); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "a start is accepted", func() bool { return s.RunCommand("run", "hello", "--wait", "--key", "third").Code == 0 })
	testwait.Until(t, "the list has everything", func() bool {
		out := s.RunCommand("runs").Out
		return strings.Contains(out, "first") && strings.Contains(out, "third")
	})
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
}

// The last line of the audit log has no end and fills its block, so that not even a line end fits on the full disk.
func TestAServerStartsOnAFullDiskWithACutAuditLog(t *testing.T) {
	t.Parallel()
	dir := clitest.ShortDir(t)
	file := filepath.Join(dir, "tideover.yaml")
	clitest.WriteFile(t, file, "version: 1\nworkflows:\n  hello:\n    steps:\n      - {id: say, run: [echo, hello]}\n")
	disk := newSmallDisk(t, filepath.Join(dir, "data"), 12)
	s := disk.serve(file)
	clitest.WantCode(t, s.RunCommand("run", "hello", "--wait", "--key", "first"), 0)
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
	if err := os.WriteFile(disk.path("audit.jsonl"), bytes.Repeat([]byte{'x'}, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	disk.fill()
	s = disk.serve(file)
	if err := os.Remove(disk.path("ballast")); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "a start is accepted", func() bool { return s.RunCommand("run", "hello", "--wait", "--key", "second").Code == 0 })
	s.Signal(syscall.SIGTERM)
	clitest.WantCode(t, s.End(), 0)
	trail, err := os.ReadFile(disk.path("audit.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(trail), "\n"), "\n")
	for i, line := range lines[1:] {
		if !json.Valid([]byte(line)) {
			t.Errorf("line %d of the audit log is %q", i+2, line)
		}
	}
	if strings.Trim(lines[0], "x") != "" || len(lines) < 4 {
		t.Errorf("the audit log has %d lines and begins with %q", len(lines), lines[0][:100])
	}
}
