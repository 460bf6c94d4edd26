//go:build unix

package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// errBusy is the system's error for a program that is open for writing.
var errBusy error = syscall.ETXTBSY

// lookup returns the path of a program, which it searches in PATH like a shell. The error is a
// [*StartError].
func lookup(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot):
		// The user has chosen to have a dot in PATH.
		return path, nil
	case isFolder(name):
		return "", &StartError{CodeNotExecutable, name, errors.New("is a folder")}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EISDIR), inPath(name):
		return "", &StartError{CodeNotExecutable, name, errors.New("not executable")}
	default:
		return "", &StartError{CodeNotFound, name, errors.New("not found")}
	}
}

// Startable returns why a command can't be started in a folder, as a [*StartError]; nil if it can.
func Startable(dir, name string) error {
	path := name
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		path = filepath.Join(dir, name)
	}
	_, err := lookup(path)
	if e, ok := errors.AsType[*StartError](err); ok {
		e.Name = name
	}
	return err
}

// isFolder reports whether name is the path of a folder, and not a name to search in PATH.
func isFolder(name string) bool {
	info, err := os.Stat(name)
	return strings.Contains(name, "/") && err == nil && info.IsDir()
}

// bare reports whether the file is a script without a #! line.
func bare(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head, err := io.ReadAll(io.LimitReader(f, 512))
	return err == nil && len(head) > 0 && !bytes.HasPrefix(head, []byte("#!")) && bytes.IndexByte(head, 0) < 0
}

// inPath reports whether a folder of PATH contains a file with that name, executable or not.
func inPath(name string) bool {
	if strings.Contains(name, "/") {
		return false
	}
	return slices.ContainsFunc(filepath.SplitList(os.Getenv("PATH")), func(dir string) bool {
		info, err := os.Stat(filepath.Join(dir, name))
		return err == nil && !info.IsDir()
	})
}

// spawn starts the command in its own process group, with extra environment variables. It returns the
// pid, which is also the number of the group.
//
// It does not use os.StartProcess, because an os.Process reaps its child itself and does not report
// stops.
func spawn(cfg *Config, extra []string, files [3]uintptr) (int, error) {
	name := cfg.Args[0]
	path, err := lookup(name)
	if err != nil {
		return 0, err
	}
	pid, err := forkExec(cfg, path, &syscall.ProcAttr{
		Env:   environ(os.Environ(), extra),
		Files: files[:],
	})
	if errors.Is(err, syscall.ENOEXEC) && bare(path) {
		err = fmt.Errorf("%w: the script has no #! line: add one, or run it with sh", err)
	}
	if err != nil {
		return 0, &StartError{startCode(err), name, err}
	}
	return pid, nil
}

// OwnGroup makes the command the leader of a process group, and makes the end of its context kill the
// whole group.
func OwnGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

func startCode(err error) int {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return CodeNotFound
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return CodeInternal // the system has no resources for another process
	default:
		return CodeNotExecutable
	}
}

// environ returns base with the variables of extra, which replace those of the same name.
func environ(base, extra []string) []string {
	isSet := func(kv string) bool {
		key, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(extra, func(e string) bool { return strings.HasPrefix(e, key+"=") })
	}
	return append(slices.DeleteFunc(slices.Clone(base), isSet), extra...)
}

// fdOf returns the descriptor of f without changing its blocking mode, as [os.File.Fd] may do for
// all processes that share the file.
func fdOf(f *os.File) int {
	fd := -1
	if c, err := f.SyscallConn(); err == nil {
		_ = c.Control(func(n uintptr) { fd = int(n) })
	}
	return fd
}
