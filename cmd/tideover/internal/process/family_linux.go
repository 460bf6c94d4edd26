package process

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// family finds the descendants of this process.
type family struct {
	self    int
	foreign map[int]bool // children we had before we started any: not ours to touch
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
	return f
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

// descendants returns all live descendants, without the foreign children and
// theirs.
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
			if !f.foreign[p.pid] {
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
