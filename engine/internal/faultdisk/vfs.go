package faultdisk

import (
	"errors"
	"os"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/tideover/tideover/engine/internal/disk"
)

// This package registers a file system (VFS) as SQLite's default. It opens files with
// the system's VFS. For files on a simulated disk it then replaces the methods that
// change, sync and close a file.

// pointer converts an address in SQLite's memory to a pointer. Go does not manage that
// memory.
func pointer(address uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&address)) }

// function returns the Go function at an address. It has the type of the second argument.
func function[F any](address uintptr, _ F) F {
	return *(*F)(unsafe.Pointer(&struct{ uintptr }{address}))
}

// address returns the address of a Go function. The garbage collector must never free
// the function, so it must be a package variable.
func address[F any](f *F) uintptr { return *(*uintptr)(unsafe.Pointer(f)) }

var (
	xOpen     = vfsOpen
	xDelete   = vfsDelete
	xClose    = fileClose
	xWrite    = fileWrite
	xTruncate = fileTruncate
	xSync     = fileSync
)

var (
	systemVFS uintptr
	ourVFS    sqlite3.Tsqlite3_vfs
)

// handles has the open files of simulated disks, by the address of SQLite's structure.
var handles sync.Map // of uintptr to *openFile

type openFile struct {
	*handle
	methods *sqlite3.Tsqlite3_io_methods // the methods of the system's VFS
}

// patched has the results of patch, by the address of the system's methods.
var patched sync.Map // of uintptr to *sqlite3.Tsqlite3_io_methods

// install registers the file system at its first call.
var install = sync.OnceFunc(func() {
	tls := libc.NewTLS()
	defer tls.Close()
	systemVFS = sqlite3.Xsqlite3_vfs_find(tls, 0)
	ourVFS = *(*sqlite3.Tsqlite3_vfs)(pointer(systemVFS))
	ourVFS.FzName, _ = libc.CString("faultdisk")
	ourVFS.FxOpen, ourVFS.FxDelete = address(&xOpen), address(&xDelete)
	sqlite3.Xsqlite3_vfs_register(tls, uintptr(unsafe.Pointer(&ourVFS)), 1)
	openReal := disk.Open
	disk.Open = func(path string) (disk.File, error) {
		f, err := openReal(path)
		if d := diskOf(path); d != nil && err == nil {
			return d.openFile(path, f)
		}
		return f, err
	}
})

func vfsOpen(tls *libc.TLS, _, name, file uintptr, flags int32, outFlags uintptr) int32 {
	path, created := "", false
	if name != 0 {
		path = libc.GoString(name)
		_, err := os.Lstat(path)
		created = err != nil
	}
	system := (*sqlite3.Tsqlite3_vfs)(pointer(systemVFS))
	rc := function(system.FxOpen, vfsOpen)(tls, systemVFS, name, file, flags, outFlags)
	d := diskOf(path)
	if rc != sqlite3.SQLITE_OK || d == nil {
		return rc
	}
	h, err := d.open(path, created)
	if err != nil {
		return sqlite3.SQLITE_CANTOPEN
	}
	f := (*sqlite3.Tsqlite3_file)(pointer(file))
	handles.Store(file, &openFile{h, (*sqlite3.Tsqlite3_io_methods)(pointer(f.FpMethods))})
	f.FpMethods = uintptr(unsafe.Pointer(patch(f.FpMethods)))
	return rc
}

// patch returns a copy of the system's methods in which the methods for close, write,
// truncate and sync are those of this package.
func patch(methods uintptr) *sqlite3.Tsqlite3_io_methods {
	if known, ok := patched.Load(methods); ok {
		return known.(*sqlite3.Tsqlite3_io_methods)
	}
	m := *(*sqlite3.Tsqlite3_io_methods)(pointer(methods))
	m.FxClose, m.FxWrite, m.FxTruncate, m.FxSync = address(&xClose), address(&xWrite), address(&xTruncate), address(&xSync)
	m.FxFetch, m.FxUnfetch = 0, 0
	m.FiVersion = min(m.FiVersion, 2) // without memory-mapped files
	known, _ := patched.LoadOrStore(methods, &m)
	return known.(*sqlite3.Tsqlite3_io_methods)
}

func opened(file uintptr) *openFile {
	f, _ := handles.Load(file)
	return f.(*openFile)
}

func vfsDelete(tls *libc.TLS, _, name uintptr, syncDir int32) int32 {
	path := libc.GoString(name)
	d := diskOf(path)
	if d != nil && d.powerless() {
		return sqlite3.SQLITE_IOERR_DELETE
	}
	system := (*sqlite3.Tsqlite3_vfs)(pointer(systemVFS))
	rc := function(system.FxDelete, vfsDelete)(tls, systemVFS, name, syncDir)
	if d != nil && rc == sqlite3.SQLITE_OK {
		d.remove(path)
	}
	return rc
}

func (d *Disk) remove(path string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if f := d.files[path]; f != nil {
		f.removed = true
	}
}

func fileClose(tls *libc.TLS, file uintptr) int32 {
	f := opened(file)
	handles.Delete(file)
	return function(f.methods.FxClose, fileClose)(tls, file)
}

func fileWrite(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	f := opened(file)
	if f.disk.powerless() {
		return sqlite3.SQLITE_IOERR_WRITE
	}
	rc := function(f.methods.FxWrite, fileWrite)(tls, file, data, n, offset)
	if rc == sqlite3.SQLITE_OK {
		f.wrote(write{offset: offset, data: append([]byte(nil), unsafe.Slice((*byte)(pointer(data)), n)...)})
	}
	return rc
}

func fileTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	f := opened(file)
	if f.disk.powerless() {
		return sqlite3.SQLITE_IOERR_TRUNCATE
	}
	rc := function(f.methods.FxTruncate, fileTruncate)(tls, file, size)
	if rc == sqlite3.SQLITE_OK {
		f.wrote(write{offset: size, truncate: true})
	}
	return rc
}

func fileSync(_ *libc.TLS, file uintptr, _ int32) int32 {
	if err := opened(file).sync(); err != nil {
		return sqlite3.SQLITE_IOERR_FSYNC
	}
	return sqlite3.SQLITE_OK
}

// goFile is a file on a simulated disk that Go code has opened instead of SQLite.
type goFile struct {
	disk.File
	*handle
}

func (d *Disk) openFile(path string, f disk.File) (disk.File, error) {
	h, err := d.open(path, false)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &goFile{f, h}, nil
}

// WriteAt implements [disk.File].
func (f *goFile) WriteAt(data []byte, offset int64) (int, error) {
	if f.disk.powerless() {
		return 0, errNo
	}
	n, err := f.File.WriteAt(data, offset)
	f.wrote(write{offset: offset, data: append([]byte(nil), data[:n]...)})
	return n, err
}

// Sync implements [disk.File].
func (f *goFile) Sync() error { return f.sync() }
