package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/sqlitelog"
)

// Folder is the data folder of a server.
type Folder struct {
	Path  string
	Keeps bool // the runs are in it; otherwise it has what can be made anew
	Lazy  bool // what was acknowledged may not be on the disk yet
}

const (
	tight = 1 << 30  // bytes that are left of a disk that will be full soon
	full  = 64 << 20 // of one on which the next snapshot may fail
)

// Check looks at the folder.
func (d Folder) Check() []Finding {
	var f findings
	if d.Lazy {
		f.add(journal.Weak, "set server.durability to full", "what was acknowledged in the last seconds is lost in a power cut", "server.durability is os")
	}
	info, err := os.Stat(d.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		d.checkDisk(&f, existing(d.Path))
		f.add(journal.Note, "nothing, unless one is expected to be there", "nothing was kept there so far", "the data folder %s is not there yet", d.Path)
		return f
	case err != nil:
		f.add(journal.Broken, "see to the cause, or name another folder with server.data", "nothing can be stored", "the data folder: %v", err)
		return f
	case !info.IsDir():
		f.add(journal.Broken, "name another folder with server.data", "nothing can be stored", "%s is not a folder", d.Path)
		return f
	}
	d.checkAccess(&f, info)
	d.checkDisk(&f, d.Path)
	if d.Keeps {
		d.checkLog(&f)
		d.checkTimes(&f)
		d.checkMoved(&f)
	}
	return f
}

// checkLog looks for a log that is gone, and for defects of what keeps it.
func (d Folder) checkLog(f *findings) {
	if err := sqlitelog.CheckFolder(d.Path); err != nil {
		f.add(journal.Broken, "put log.db and blobs back from a backup, or name another folder with server.data", "all runs and keys are gone, and serve does not start", "%v", err)
	}
	if err := sqlitelog.CheckVersion(); err != nil {
		f.add(journal.Broken, "use a tideover that was built with a newer SQLite", "runs may be lost", "%v", err)
	}
}

// existing returns the path or the next folder above it that is there.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// checkAccess looks at who can read and write.
func (d Folder) checkAccess(f *findings, info fs.FileInfo) {
	if err := fileaccess.Check(d.Path, info, fileaccess.GroupOrOthers); err != nil {
		f.add(journal.Broken, "chown and chmod 700 "+d.Path, "serve does not start: others could plant a token, and could change what is kept", "the data folder: %v", err)
	} else if mode := info.Mode().Perm(); runtime.GOOS != "windows" && mode&0o077 != 0 {
		f.add(journal.Weak, "chmod 700 "+d.Path, "others on this machine can see or change what is kept", "the data folder %s is open to others (%v)", d.Path, mode)
	}
	t, err := os.CreateTemp(d.Path, ".doctor-")
	if err == nil {
		err = errors.Join(t.Close(), os.Remove(t.Name()))
	}
	if err != nil {
		f.add(journal.Broken, "run as the user who owns the folder, or make it writable for this one", "nothing can be stored", "the data folder can't be written: %v", err)
	}
}

// checkDisk looks at what the folder is on.
func (d Folder) checkDisk(f *findings, path string) {
	disk, err := diskOf(path)
	if err != nil {
		return // this system does not say
	}
	switch {
	case disk.free < full:
		f.add(journal.Broken, "make room", "runs wait until there is room", "the disk of %s is full: %d MB are left", path, disk.free>>20)
	case disk.free < tight:
		f.add(journal.Weak, "make room", "when it is full, runs wait until there is room", "the disk of %s will be full soon: %d MB are left", path, disk.free>>20)
	}
	if !d.Keeps {
		return
	}
	switch disk.kind {
	case onDisk:
	case inMemory:
		f.add(journal.Broken, "name a folder on a disk with server.data", "everything is lost when the machine is started again", "the data folder is in memory (%s)", disk.name)
	case ofNetwork:
		f.add(journal.Weak, "name a folder on a disk of this machine, or share runs on a cluster with engine.nats",
			"locks and syncs of network file systems do not always hold: two servers may use the folder at once", "the data folder is on a network file system (%s)", disk.name)
	case ofContainer:
		f.add(journal.Weak, "mount a volume, and name a folder in it with server.data", "everything is lost with the container", "the data folder is in the layer of a container (%s)", disk.name)
	}
}

// slack is how far the times of files may be ahead without a clock having been set.
const slack = time.Minute

// checkTimes looks for a clock that goes wrong.
func (d Folder) checkTimes(f *findings) {
	info, err := os.Stat(filepath.Join(d.Path, "log.db"))
	if err == nil && time.Until(info.ModTime()) > slack {
		f.add(journal.Weak, "have the clock set by NTP", "schedules and delayed starts are late by that much",
			"the clock is behind: the log was written %v from now", time.Until(info.ModTime()).Round(time.Second))
	}
	if unset() {
		f.add(journal.Note, "have it set by NTP, unless the host of this machine does", "schedules may be early or late", "the system does not know that its clock is right")
	}
}

// checkMoved looks whether the runs are somewhere else.
func (d Folder) checkMoved(f *findings) {
	if _, err := os.Stat(filepath.Join(d.Path, "blobs", "moved")); err == nil {
		f.add(journal.Broken, "use the configuration that they were moved to, or name another folder with server.data",
			"the server refuses to open it", "the runs of %s were moved", d.Path)
	}
}
