package process

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// EndLeftovers ends processes that attempts have left running: with TERM, and with KILL after the
// grace period. It returns an error if a process does not end, or if the context ends first.
func EndLeftovers(ctx context.Context, list []Leftovers, grace time.Duration) error {
	if len(list) == 0 {
		return nil // don't read the list of all processes
	}
	cgroups := cgroupsOf(list)
	kill := time.Now().Add(grace)
	told := map[int]bool{}
	spared := ancestors()
	looked := false
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		left := findLeftovers(list, cgroups, spared)
		late := time.Since(kill)
		switch {
		case len(left) == 0 && looked:
			for _, dir := range cgroups {
				RemoveCgroup(dir)
			}
			return nil
		case len(left) == 0:
			looked = true // check twice: a process has no environment while it executes a new program
		case late > unkillable:
			var pids []int
			for _, p := range left {
				pids = append(pids, p.Pid)
			}
			return fmt.Errorf("process %s of an earlier attempt does not end, even after KILL", describePIDs(pids))
		default:
			looked = false
			signalLeftovers(left, late >= 0, told)
			if late >= 0 {
				for _, dir := range cgroups { // kill all its processes at once, so that none can start another meanwhile
					_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0)
				}
			}
		}
		for _, p := range left {
			_ = p.Release()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("waiting for processes of an earlier attempt to end: %w", context.Cause(ctx))
		}
	}
}

// findLeftovers returns handles of the processes that are leftovers, except those in spared. A handle
// never refers to another process, even if the pid is reused.
func findLeftovers(list []Leftovers, cgroups []string, spared map[int]bool) (found []*os.Process) {
	var members []int // of the cgroups
	for _, dir := range cgroups {
		members = append(members, cgroupProcesses(dir)...)
	}
	for _, p := range processes() {
		if spared[p.pid] {
			continue
		}
		handle, err := os.FindProcess(p.pid)
		if err != nil {
			continue
		}
		if slices.Contains(members, p.pid) || hasEnvironment(p.pid, list) {
			found = append(found, handle)
		} else {
			_ = handle.Release()
		}
	}
	return found
}

// hasEnvironment reports whether the process has all variables of at least one entry of the list.
func hasEnvironment(pid int, list []Leftovers) bool {
	if !slices.ContainsFunc(list, func(l Leftovers) bool { return len(l.Env) > 0 }) {
		return false
	}
	text, err := environment(pid)
	if err != nil || len(text) == 0 {
		return false
	}
	env := bytes.Split(text, []byte{0})
	return slices.ContainsFunc(list, func(l Leftovers) bool {
		return len(l.Env) > 0 && !slices.ContainsFunc(l.Env, func(kv string) bool {
			return !slices.ContainsFunc(env, func(has []byte) bool { return string(has) == kv })
		})
	})
}

// ancestors returns this process and its ancestors, which are never leftovers.
func ancestors() map[int]bool {
	parents := map[int]int{}
	for _, p := range processes() {
		parents[p.pid] = p.parent
	}
	found := map[int]bool{}
	for pid := os.Getpid(); pid > 0 && !found[pid]; pid = parents[pid] {
		found[pid] = true
	}
	return found
}

// signalLeftovers sends KILL to each process if kill is set. Otherwise it sends TERM to each
// process that is not in told, and adds it to told.
func signalLeftovers(list []*os.Process, kill bool, told map[int]bool) {
	for _, p := range list {
		switch {
		case kill:
			_ = p.Signal(syscall.SIGKILL)
		case !told[p.Pid]:
			told[p.Pid] = true
			_ = p.Signal(syscall.SIGTERM)
			_ = p.Signal(syscall.SIGCONT)
		}
	}
}

// cgroupPrefix is the beginning of the names of our cgroups.
const cgroupPrefix = "tideover-"

// NewCgroup creates a cgroup inside that of this process, and returns its folder. It returns "" if
// that is not possible: it needs cgroup version 2 and permission, as root and services with
// Delegate=yes have.
func NewCgroup() string {
	own := ownCgroup()
	if own == "" {
		return ""
	}
	dir, err := os.MkdirTemp(own, cgroupPrefix+strconv.Itoa(os.Getpid())+"-")
	if err != nil {
		return ""
	}
	return dir
}

// RemoveCgroup removes a cgroup of [NewCgroup], unless it contains processes, such as a daemon that
// the command has started on purpose.
func RemoveCgroup(dir string) { _ = os.Remove(dir) }

// RemoveEmptyCgroups removes cgroups of [NewCgroup] that contain no process any more, such as a daemon
// that has ended. It leaves cgroups whose creator still runs and may be about to start a command there.
func RemoveEmptyCgroups() {
	if own := ownCgroup(); own != "" {
		removeEmptyCgroups(own, func(pid int) bool { return syscall.Kill(pid, 0) != syscall.ESRCH })
	}
}

func removeEmptyCgroups(parent string, runs func(pid int) bool) {
	dirs, _ := filepath.Glob(filepath.Join(parent, cgroupPrefix+"*"))
	for _, dir := range dirs {
		if pid, ok := cgroupOwner(dir); !ok || !runs(pid) {
			RemoveCgroup(dir)
		}
	}
}

// cgroupOwner returns the pid of the process that created a cgroup, from its name. ok is false for
// cgroups of earlier releases, whose names do not contain it.
func cgroupOwner(dir string) (pid int, ok bool) {
	owner, _, ok := strings.Cut(strings.TrimPrefix(filepath.Base(dir), cgroupPrefix), "-")
	pid, err := strconv.Atoi(owner)
	return pid, ok && err == nil && pid > 0
}

// cgroupsOf returns the folders of those cgroups of the list that [NewCgroup] has created.
func cgroupsOf(list []Leftovers) (dirs []string) {
	for _, l := range list {
		if filepath.IsAbs(l.Cgroup) && strings.HasPrefix(filepath.Base(l.Cgroup), cgroupPrefix) {
			dirs = append(dirs, l.Cgroup)
		}
	}
	return dirs
}

// cgroupProcesses returns the processes in a cgroup and in its children.
func cgroupProcesses(dir string) (pids []int) {
	_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() { // otherwise it may have been removed
			pids = append(pids, readPIDs(filepath.Join(path, "cgroup.procs"))...)
		}
		return nil
	})
	return pids
}

// ownCgroup returns the folder of this process's cgroup (version 2); "" if it is not visible.
func ownCgroup() string {
	memberships, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(memberships)) {
		path, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::")
		if !ok {
			continue
		}
		root, point := cgroupMount()
		if inside, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/")); ok && point != "" {
			return filepath.Join(point, inside)
		}
	}
	return ""
}

// cgroupMount returns the mount point of the cgroup file system (version 2), and root, the path of
// the cgroup that is mounted there; "" if there is none.
func cgroupMount() (root, point string) {
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		mount, kind, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if strings.HasPrefix(kind, "cgroup2 ") && len(fields) > 4 {
			return fields[3], fields[4]
		}
	}
	return "", ""
}
