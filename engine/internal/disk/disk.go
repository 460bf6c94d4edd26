// Package disk opens files that the engine accesses without SQLite. It is a separate package so
// that tests can simulate a disk that fails: see package faultdisk.
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

	// Sync writes everything to the disk. When it returns nil, the data survives a power
	// failure.
	Sync() error
}

// Open opens an existing file for reading and writing. Only tests replace it.
var Open = func(path string) (File, error) { return os.OpenFile(path, os.O_RDWR, 0) }
