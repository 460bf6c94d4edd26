package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// markKey is the variable by which our processes are known among those of
// others. It is set only if there are others.
const markKey = "TIDEOVER_RUN"

// becoming is how many milliseconds a process may take from one program to the
// next, on a busy machine, before it is held to have no environment.
const becoming = 500

// family finds the descendants of this process that are ours.
//
// Nearly always that is all of them. But a shell that has started jobs may have
// become us (exec), and then its children and theirs are our descendants too.
// When one of them dies its own children come to us, and nothing in the process
// table tells them from what our command has left behind. So if there were
// children before ours, a process is ours only if it has our mark in its
// environment, or descends from one that has. The price is that an orphan that
// has emptied its environment is not found in that case; the other way, by a
// list of what was there before, would kill what such a child starts later.
type family struct {
	self    int
	foreign map[int]bool // children we had before we started any: not ours to touch
	mark    string       // "KEY=value"; empty if there are none
}

// relative is a descendant that is not yet dead.
type relative struct {
	pid, parent, group int
}

// newFamily makes this process the one to which descendants come when their
// parents die. Where that is forbidden, those that left the group are lost.
func newFamily() *family {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
	f := &family{self: os.Getpid(), foreign: map[int]bool{}}
	for _, pid := range f.children() {
		f.foreign[pid] = true
	}
	if len(f.foreign) > 0 {
		// The mark of a tideover around us stays in front of ours.
		f.mark = fmt.Sprintf("%s=%s/%d.%016x", markKey, os.Getenv(markKey), f.self, rand.Uint64())
	}
	return f
}

// environment returns what the command needs in its environment to be known as
// ours.
func (f *family) environment() []string {
	if f.mark == "" {
		return nil
	}
	return []string{f.mark}
}

// ours reports whether a child of this process is one of ours.
func (f *family) ours(pid int) bool {
	if f.foreign[pid] {
		return false
	}
	if f.mark == "" {
		return true
	}
	env, err := environment(pid)
	for tries := 0; len(env) == 0 && !errors.Is(err, fs.ErrNotExist) && tries < becoming; tries++ {
		// It has none, or is just becoming another program and meanwhile shows none.
		time.Sleep(time.Millisecond)
		env, err = environment(pid)
	}
	for kv := range bytes.SplitSeq(env, []byte{0}) {
		if bytes.HasPrefix(kv, []byte(f.mark)) {
			return true // followed by the mark of a tideover that we run, if at all
		}
	}
	return false
}

// environment reads the environment of a process in one piece: between two
// reads it may become another program, and the rest would be missing.
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

// children returns our children, the dead ones included, without the foreign.
func (f *family) children() []int {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	var pids []int
	for _, name := range lists {
		data, _ := os.ReadFile(name)
		for field := range bytes.FieldsSeq(data) {
			if pid, err := strconv.Atoi(string(field)); err == nil && !f.foreign[pid] {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// descendants returns all live descendants that are ours.
func (f *family) descendants() []relative {
	byParent := map[int][]relative{}
	for _, p := range processes() {
		byParent[p.parent] = append(byParent[p.parent], p)
	}
	var found []relative
	parents := []int{f.self}
	for len(parents) > 0 {
		children := byParent[parents[0]]
		parents = parents[1:]
		for _, p := range children {
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

// parseStat reads a line of /proc/PID/stat; ok is false for the dead. The name
// in it may hold anything, brackets and spaces included.
func parseStat(pid int, data []byte) (p relative, ok bool) {
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) < 3 || bytes.ContainsAny(fields[0], "ZXx") {
		return relative{}, false
	}
	parent, err1 := strconv.Atoi(string(fields[1]))
	group, err2 := strconv.Atoi(string(fields[2]))
	return relative{pid, parent, group}, err1 == nil && err2 == nil
}
