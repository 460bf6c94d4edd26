package cli

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
func (d *smallDisk) serve(file string) *serverProcess {
	d.t.Helper()
	s := &serverProcess{backgroundProcess: &backgroundProcess{t: d.t, dir: filepath.Dir(file)}, file: file, data: d.path(""), out: new(syncBuffer)}
	s.Cmd, s.mark = command(d.t, "serve", "--config", file, "--data", d.data, "--listen", "127.0.0.1:0")
	nsenter, err := exec.LookPath("nsenter")
	if err != nil {
		d.t.Skip("needs nsenter")
	}
	s.Args = append([]string{"nsenter", "--mount", "--target", fmt.Sprint(d.holder.Process.Pid), s.Path}, s.Args[1:]...)
	s.Path = nsenter
	s.Stdout, s.Stderr = s.out, s.out
	s.begin()
	s.serves()
	return s
}

// wantFewLines checks that a problem is logged at most once a minute.
//
// real clock: a slow machine may log it more often
func wantFewLines(t *testing.T, s *serverProcess, since time.Time, message string) {
	t.Helper()
	if got, limit := strings.Count(s.out.String(), message), 2+int(time.Since(since)/time.Minute); got > limit {
		t.Errorf("%q is logged %d times, want at most %d", message, got, limit)
	}
}

func TestAFullDiskStopsNothingForGood(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	file := filepath.Join(dir, "tideover.yaml")
	write(t, file, "version: 1\nworkflows:\n  hello:\n    steps:\n      - {id: say, run: [echo, hello]}\n")
	disk := newSmallDisk(t, filepath.Join(dir, "data"), 12)
	s := disk.serve(file)
	wantCode(t, s.runCommand("run", "hello", "--wait", "--key", "first"), 0)
	disk.fill()
	began := time.Now()
	pending, _ := command(t, "run", "hello", "--wait", "--key", "second", "--server", "unix:"+disk.path("tideover.sock"))
	refused := make(chan outcome, 1)
	go func() { refused <- finish(t, pending) }()
	fullSaid := func() bool {
		o := s.runCommand("status")
		return strings.Contains(o.out+o.stderr, "no room for the log")
	}
	testwait.Until(t, "status says what is wrong", fullSaid)
	wantIn(t, "a run", s.runCommand("show", "first").out, "succeeded")
	wantFewLines(t, s, began, "can't store")
	second := testwait.Receive(t, "the start is refused while the server runs", refused)
	wantCode(t, second, 125)
	wantIn(t, "the refusal of a start", second.stderr, "start hello: the log can't be written; the change may be stored when that works again")
	wantIn(t, "the refusal of a start", second.stderr, "no room for the log")

	// The server starts on the full disk after a kill, and after an orderly stop.
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		s.signal(sig)
		s.wait()
		disk.fill()
		began = time.Now()
		s = disk.serve(file)
		testwait.Until(t, "status answers", func() bool { return s.runCommand("status").code == 0 })
		wantFewLines(t, s, began, "can't ")
	}

	if err := os.Remove(disk.path("ballast")); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "a start is accepted", func() bool { return s.runCommand("run", "hello", "--wait", "--key", "third").code == 0 })
	testwait.Until(t, "the list has everything", func() bool {
		out := s.runCommand("runs").out
		return strings.Contains(out, "first") && strings.Contains(out, "third")
	})
	s.signal(syscall.SIGTERM)
	wantCode(t, s.wait(), 0)
}

// The last line of the audit log has no end and fills its block, so that not even a line end fits on the full disk.
func TestAServerStartsOnAFullDiskWithACutAuditLog(t *testing.T) {
	t.Parallel()
	dir := shortDir(t)
	file := filepath.Join(dir, "tideover.yaml")
	write(t, file, "version: 1\nworkflows:\n  hello:\n    steps:\n      - {id: say, run: [echo, hello]}\n")
	disk := newSmallDisk(t, filepath.Join(dir, "data"), 12)
	s := disk.serve(file)
	wantCode(t, s.runCommand("run", "hello", "--wait", "--key", "first"), 0)
	s.signal(syscall.SIGTERM)
	wantCode(t, s.wait(), 0)
	if err := os.WriteFile(disk.path("audit.jsonl"), bytes.Repeat([]byte{'x'}, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	disk.fill()
	s = disk.serve(file)
	if err := os.Remove(disk.path("ballast")); err != nil {
		t.Fatal(err)
	}
	testwait.Until(t, "a start is accepted", func() bool { return s.runCommand("run", "hello", "--wait", "--key", "second").code == 0 })
	s.signal(syscall.SIGTERM)
	wantCode(t, s.wait(), 0)
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
