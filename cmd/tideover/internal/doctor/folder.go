package doctor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/sqlitelog"
)

// Folder is the data folder of a server.
type Folder struct {
	Path  string
	Keeps bool // the folder stores the runs; if not, its contents can be recreated
	Lazy  bool // server.durability is os: acknowledged writes may not be on the disk yet
	InUse bool // this process uses the folder: it has read the log when it opened it
	Deep  bool // also read the archives and the view
}

const (
	tight = 1 << 30  // free bytes below which the disk will be full soon
	full  = 64 << 20 // free bytes below which the next snapshot may fail
)

// Check checks the durability setting, the permissions, the disk and, if Keeps is set, the log and the
// clock.
func (d Folder) Check(ctx context.Context) []Finding {
	var f findings
	if d.Lazy {
		f.add(journal.Weak, "set server.durability to full", "runs that were acknowledged in the last seconds are lost in a power failure", "server.durability is os")
	}
	info, err := os.Stat(d.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.checkDisk(&f, existing(d.Path))
		f.add(journal.Note, "nothing, unless it should exist", "nothing was stored there so far", "the data folder %s does not exist yet", d.Path)
		return f
	case err != nil:
		f.add(journal.Broken, "fix the cause, or set server.data to another folder", "nothing can be stored", "the data folder: %v", err)
		return f
	case !info.IsDir():
		f.add(journal.Broken, "set server.data to another folder", "nothing can be stored", "%s is not a folder", d.Path)
		return f
	}
	d.checkAccess(&f, info)
	d.checkDisk(&f, d.Path)
	if d.Keeps {
		d.checkLog(ctx, &f)
		d.checkTimes(&f)
		d.checkMoved(&f)
	}
	return f
}

// checkLog reads the log, and reports damage and a defective version of SQLite.
func (d Folder) checkLog(ctx context.Context, f *findings) {
	if !d.InUse {
		durability := engine.Full
		if d.Lazy {
			durability = engine.OS
		}
		found, err := engine.Examine(ctx, d.Path, durability, d.Deep)
		if err != nil {
			f.add(journal.Weak, "run doctor again", "the log may be damaged", "the log was not read: %v", err)
		}
		*f = append(*f, found...)
	}
	if err := sqlitelog.CheckVersion(); err != nil {
		f.add(journal.Broken, "use a tideover that was built with a newer SQLite", "runs may be lost", "%v", err)
	}
}

// existing returns the path, or the nearest parent folder that exists.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// checkAccess checks that only this user can access the folder, and that it is writable.
func (d Folder) checkAccess(f *findings, info fs.FileInfo) {
	if err := fileaccess.Check(d.Path, info, fileaccess.GroupOrOthers); err != nil {
		f.add(journal.Broken, "chown and chmod 700 "+d.Path, "serve does not start: other users could replace the token and change stored data", "the data folder: %v", err)
	} else if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		f.add(journal.Weak, "chmod 700 "+d.Path, "other users of this machine can read or change stored data", "the data folder %s is accessible to other users (%v)", d.Path, mode)
	}
	t, err := os.CreateTemp(d.Path, ".doctor-")
	if err == nil {
		err = errors.Join(t.Close(), os.Remove(t.Name()))
	}
	if err != nil {
		f.add(journal.Broken, "run as the owner of the folder, or make it writable for this user", "nothing can be stored", "the data folder can't be written: %v", err)
	}
}

// checkDisk checks free space and the type of storage.
func (d Folder) checkDisk(f *findings, path string) {
	disk, err := diskOf(path)
	if err != nil {
		return // unknown on this system
	}
	switch {
	case disk.free < full:
		f.add(journal.Broken, "free disk space", "runs wait until there is space", "the disk of %s is full: %d MB are left", path, disk.free>>20)
	case disk.free < tight:
		f.add(journal.Weak, "free disk space", "when it is full, runs wait until there is space", "the disk of %s will be full soon: %d MB are left", path, disk.free>>20)
	}
	if !d.Keeps {
		return
	}
	switch disk.kind {
	case onDisk:
	case inMemory:
		f.add(journal.Broken, "set server.data to a folder on a disk", "everything is lost when the machine restarts", "the data folder is in memory (%s)", disk.name)
	case ofNetwork:
		f.add(journal.Weak, "use a folder on a local disk, or a cluster with engine.nats",
			"locks and syncs are unreliable on network file systems: two servers may use the folder at once", "the data folder is on a network file system (%s)", disk.name)
	case ofContainer:
		f.add(journal.Weak, "mount a volume and set server.data to a folder in it", "everything is lost when the container is removed", "the data folder is inside the container image layer (%s)", disk.name)
	}
}

// slack is how far in the future the time of a file may be before the clock counts as wrong.
const slack = time.Minute

// checkTimes reports a clock that is behind the last write of the log, or is not synchronised.
func (d Folder) checkTimes(f *findings) {
	info, err := os.Stat(filepath.Join(d.Path, "log.db"))
	if err == nil && time.Until(info.ModTime()) > slack {
		f.add(journal.Weak, "synchronise the clock with NTP", "schedules and delayed starts are late by that much",
			"the clock is behind: the log was written %v from now", time.Until(info.ModTime()).Round(time.Second))
	}
	if clockUnset() {
		f.add(journal.Note, "synchronise it with NTP, unless the host of this virtual machine does", "schedules may be early or late", "the system clock is not synchronised")
	}
}

// checkMoved reports that the runs of the folder were moved to another place.
func (d Folder) checkMoved(f *findings) {
	if _, err := os.Stat(filepath.Join(d.Path, "blobs", "moved")); err == nil {
		f.add(journal.Broken, "use the configuration of the new place, or set server.data to another folder",
			"the server does not open it", "the runs of %s were moved to another place", d.Path)
	}
}
