package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// markKey is the variable that marks the processes of our command. It is set only if this process
// had other children at its start.
const markKey = "TIDEOVER_RUN"

// becoming is how many milliseconds to wait for the environment of a process. The environment is
// empty while the process starts a new program with exec.
const becoming = 500

// family finds the descendants of this process that belong to our command.
//
// Usually those are all of them. But a shell with background jobs may have replaced itself by us
// (exec); then its children are our descendants, too. When one of those dies, we inherit its
// children, and the process table does not distinguish them from processes of our command. So if
// there were children at our start, a process belongs to our command only if its environment
// contains our mark, or if it descends from such a process. The drawback is that an orphan with an
// empty environment is not found in that case. The alternative, a list of the processes at our
// start, would make us kill processes that such a child starts later.
type family struct {
	self    int
	foreign map[int]bool // children from before the first attempt, which we must not touch
	mark    string       // "KEY=value"; empty if there are no foreign children
}

// relative is a live process with its parent, group and session.
type relative struct {
	pid, parent, group, session int
}

// newFamily makes this process the subreaper of its descendants. If that is forbidden, descendants
// that left the group are not found.
func newFamily() *family {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	f := &family{self: os.Getpid(), foreign: map[int]bool{}}
	for _, pid := range f.children() {
		f.foreign[pid] = true
	}
	if len(f.foreign) > 0 {
		// If another tideover runs us, the mark begins with that of the other one.
		f.mark = fmt.Sprintf("%s=%s/%d.%016x", markKey, os.Getenv(markKey), f.self, rand.Uint64())
	}
	return f
}

// environment returns the variable that marks the command, if marks are needed.
func (f *family) environment() []string {
	if f.mark == "" {
		return nil
	}
	return []string{f.mark}
}

// ours reports whether a child of this process belongs to our command.
func (f *family) ours(pid int) bool {
	if f.foreign[pid] {
		return false
	}
	if f.mark == "" {
		return true
	}
	env, err := environment(pid)
	for tries := 0; len(env) == 0 && !errors.Is(err, fs.ErrNotExist) && tries < becoming; tries++ {
		// The environment is empty, or the process is just executing a new program.
		time.Sleep(time.Millisecond)
		env, err = environment(pid)
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.HasPrefix(kv, []byte(f.mark)) {
			return true // only a prefix, because a tideover inside our command appends its own mark
		}
	}
	return false
}

// environment reads the environment of a process with a single read: between two reads the process
// may execute another program.
func environment(pid int) ([]byte, error) {
	for size := 64 << 10; ; size *= 4 {
		file, err := os.Open(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			return nil, err
		}
		env := make([]byte, size)
		n, err := file.Read(env)
		_ = file.Close()
		if n < size {
			return env[:n], err
		}
	}
}

// children returns our children, including zombies, except the foreign ones.
func (f *family) children() []int {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	var pids []int
	for _, name := range lists {
		pids = append(pids, readPIDs(name)...)
	}
	return slices.DeleteFunc(pids, func(pid int) bool { return f.foreign[pid] })
}

// readPIDs reads a file of the kernel that lists processes; none if it can't be read.
func readPIDs(path string) (pids []int) {
	text, _ := os.ReadFile(path)
	for field := range bytes.FieldsSeq(text) {
		if pid, err := strconv.Atoi(string(field)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// descendants returns all live descendants that belong to our command.
func (f *family) descendants() []relative {
	byParent := map[int][]relative{}
	for _, p := range processes() {
		byParent[p.parent] = append(byParent[p.parent], p)
	}
	var found []relative
	for parents := []int{f.self}; len(parents) > 0; parents = parents[1:] {
		for _, p := range byParent[parents[0]] {
			if p.parent != f.self || f.ours(p.pid) {
				found = append(found, p)
				parents = append(parents, p.pid)
			}
		}
	}
	return found
}

// processes returns every process of the system that is not a zombie.
func processes() []relative {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var all []relative
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if data, err := os.ReadFile("/proc/" + name + "/stat"); err == nil {
			if p, ok := parseStat(pid, data); ok {
				all = append(all, p)
			}
		}
	}
	return all
}

// parseStat parses a line of /proc/PID/stat; ok is false for a zombie. The process name in it may
// contain brackets and spaces.
func parseStat(pid int, data []byte) (p relative, ok bool) {
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 4 || bytes.ContainsAny(fields[0], "ZXx") {
		return relative{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	session, err3 := strconv.Atoi(string(fields[3]))
	return relative{pid, parent, group, session}, err1 == nil && err2 == nil && err3 == nil
}

// KillSession kills every process of a session, except its leader. Use it after the leader was
// killed.
func KillSession(leader int) {
	for _, p := range processes() {
		if p.session == leader && p.pid != leader {
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
	}
}
