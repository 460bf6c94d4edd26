package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// member is a file of an archive. Its mode is 0755 for executable files and 0644 for all others, so
// that it does not depend on the umask.
type member struct {
	name string // with slashes, including the name of the folder
	mode fs.FileMode
	data []byte
}

// pack writes the folder into an archive, .tar.gz or .zip. The bytes of the archive depend only on
// the names, modes and contents of the files and on the given time.
func pack(file, folder string, at time.Time) (err error) {
	write := writeTar
	if strings.HasSuffix(file, ".zip") {
		write = writeZip
	} else if !strings.HasSuffix(file, ".tar.gz") {
		return fmt.Errorf("pack: %s is neither .tar.gz nor .zip", file)
	}
	members, err := membersOf(folder)
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return write(f, members, at)
}

// membersOf returns the files of a folder, sorted by name.
func membersOf(folder string) (list []member, err error) {
	err = filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a file", path)
		}
		rel, err := filepath.Rel(filepath.Dir(filepath.Clean(folder)), path)
		if err != nil {
			return err
		}
		m := member{name: filepath.ToSlash(rel), mode: 0o644}
		if info.Mode()&0o111 != 0 {
			m.mode = 0o755
		}
		m.data, err = os.ReadFile(path)
		list = append(list, m)
		return err
	})
	return list, err
}

func writeTar(w io.Writer, members []member, at time.Time) error {
	z := gzip.NewWriter(w) // without a name and a time in the header
	t := tar.NewWriter(z)
	for _, m := range members {
		h := &tar.Header{Name: m.name, Mode: int64(m.mode), Size: int64(len(m.data)), ModTime: at, Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
		err := t.WriteHeader(h)
		if err == nil {
			_, err = t.Write(m.data)
		}
		if err != nil {
			return fmt.Errorf("pack %s: %w", m.name, err)
		}
	}
	return errors.Join(t.Close(), z.Close())
}

func writeZip(w io.Writer, members []member, at time.Time) error {
	z := zip.NewWriter(w)
	for _, m := range members {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: at}
		h.SetMode(m.mode)
		f, err := z.CreateHeader(h)
		if err == nil {
			_, err = f.Write(m.data)
		}
		if err != nil {
			return fmt.Errorf("pack %s: %w", m.name, err)
		}
	}
	return z.Close()
}

// sums prints the SHA-256 of each file in a folder, sorted by name, in the format of sha256sum and
// shasum.
func sums(folder string, out io.Writer) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("sums: %w", err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err == nil {
			_, err = fmt.Fprintf(out, "%x  %s\n", sha256.Sum256(data), e.Name())
		}
		if err != nil {
			return fmt.Errorf("sums: %w", err)
		}
	}
	return nil
}
