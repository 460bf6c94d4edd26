// Package disk opens files beside SQLite. It is apart so that tests can simulate a disk
// that fails: see package faultdisk.
package disk

import (
	"io"
	"os"
)

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer

	// Sync returns when everything that was written is on disk.
	Sync() error
}

// Open opens an existing file for reading and writing. Only tests replace it.
var Open = func(path string) (File, error) { return os.OpenFile(path, os.O_RDWR, 0) }
