package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// read returns what a file of a release has to install.
func read(file string) ([]member, release, error) {
	r, suffix, err := parseName(file)
	if err != nil {
		return nil, r, err
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, r, err
	}
	for _, f := range formats {
		if f.suffix == suffix {
			members, err := f.read(data)
			if err != nil {
				err = fmt.Errorf("%s: %w", filepath.Base(file), err)
			}
			return members, r, err
		}
	}
	panic("parseName returned no suffix of formats")
}

// unpack writes what a file of a release has to install into a folder.
func unpack(file, folder string) error {
	members, _, err := read(file)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, m := range members {
		name := filepath.FromSlash(m.name)
		if m.mode.IsDir() {
			err = root.MkdirAll(name, m.mode.Perm())
		} else if err = root.MkdirAll(filepath.Dir(name), 0o755); err == nil {
			err = root.WriteFile(name, m.data, m.mode)
		}
		if err == nil {
			err = root.Chmod(name, m.mode.Perm()) // without the umask
		}
		if err == nil && m.owner != 0 && os.Getuid() == 0 {
			err = root.Chown(name, m.owner, m.owner)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func readTar(r io.Reader) (list []member, err error) {
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		var data []byte
		if err == nil {
			data, err = io.ReadAll(t)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, member{name: strings.TrimSuffix(h.Name, "/"), mode: h.FileInfo().Mode(), owner: h.Uid, data: data})
	}
}

func readTarGz(data []byte) ([]member, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	return readTar(z)
}

func readArchive(data []byte) ([]member, error) {
	members, err := readTarGz(data)
	return withoutFolder(members), err
}

func readZip(data []byte) (list []member, err error) {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, err
	}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return nil, err
		}
		list = append(list, member{name: f.Name, mode: f.Mode(), data: data})
	}
	return withoutFolder(list), nil
}

// withoutFolder removes the folder that an archive consists of from the names.
func withoutFolder(members []member) []member {
	for i, m := range members {
		_, members[i].name, _ = strings.Cut(m.name, "/")
	}
	return members
}
