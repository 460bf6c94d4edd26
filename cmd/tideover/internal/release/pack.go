package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// member is a file or a folder of an archive. The mode of a file is 0755 if it is executable and
// else 0644, so that it does not depend on the umask.
type member struct {
	name  string // with slashes
	mode  fs.FileMode
	owner int // user and group
	data  []byte
}

// release is what the name of a file says: tideover_0.1.0_linux_amd64.deb.
type release struct {
	version, system, arch string
	at                    time.Time
}

// formats are the formats of a release, by the suffix of the file.
var formats = []struct {
	suffix string
	write  func(io.Writer, []member, release) error
	read   func([]byte) ([]member, error)
}{
	{".tar.gz", writeArchive, readArchive},
	{".zip", writeZip, readZip},
	{".deb", writeDeb, readDeb},
	{".rpm", writeRPM, readRPM},
	{".oci.tar", writeImage, readImage},
}

// parseName returns what the name of a file says, and its suffix.
func parseName(file string) (r release, suffix string, err error) {
	base := filepath.Base(file)
	for _, f := range formats {
		name, ok := strings.CutSuffix(base, f.suffix)
		parts := strings.Split(name, "_")
		if ok && len(parts) == 4 && parts[0] == "tideover" {
			return release{version: parts[1], system: parts[2], arch: parts[3]}, f.suffix, nil
		}
	}
	return r, "", fmt.Errorf("%s is not the name of an archive, a package or an image", base)
}

// pack writes a folder into a file, in the format of the file's suffix. The bytes of the file depend
// only on its name, on the names, modes and contents of the packed files and on the given time.
func pack(file, folder string, at time.Time) error {
	r, suffix, err := parseName(file)
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	r.at = at
	members, err := membersOf(folder)
	if err != nil {
		return fmt.Errorf("pack: %w", err)
	}
	var out bytes.Buffer
	for _, f := range formats {
		if f.suffix == suffix {
			err = f.write(&out, members, r)
		}
	}
	if err != nil {
		return fmt.Errorf("pack %s: %w", file, err)
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

// membersOf returns the files of a folder, sorted by path.
func membersOf(folder string) (list []member, err error) {
	err = filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a file", file)
		}
		rel, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		m := member{name: filepath.ToSlash(rel), mode: 0o644}
		if info.Mode()&0o111 != 0 {
			m.mode = 0o755
		}
		m.data, err = os.ReadFile(file)
		list = append(list, m)
		return err
	})
	return list, err
}

// withFolders adds the folders of the files, each before its contents.
func withFolders(files []member) []member {
	all := map[string]member{}
	for _, f := range files {
		all[f.name] = f
		for dir := path.Dir(f.name); dir != "."; dir = path.Dir(dir) {
			if _, ok := all[dir]; !ok {
				all[dir] = member{name: dir, mode: fs.ModeDir | 0o755}
			}
		}
	}
	list := slices.Collect(maps.Values(all))
	slices.SortFunc(list, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return list
}

// inFolder returns the members with a prefix before their names.
func inFolder(prefix string, members []member) []member {
	list := slices.Clone(members)
	for i := range list {
		list[i].name = prefix + list[i].name
	}
	return list
}

// folderOf returns the name of the folder that an archive consists of.
func (r release) folderOf() string {
	return fmt.Sprintf("tideover_%s_%s_%s/", r.version, r.system, r.arch)
}

func writeArchive(w io.Writer, members []member, r release) error {
	return writeTarGz(w, inFolder(r.folderOf(), members), r.at)
}

func writeTarGz(w io.Writer, members []member, at time.Time) error {
	z := gzip.NewWriter(w) // without a name and a time in the header
	return errors.Join(writeTar(z, members, at), z.Close())
}

func writeTar(w io.Writer, members []member, at time.Time) error {
	t := tar.NewWriter(w)
	for _, m := range members {
		h := &tar.Header{
			Name: m.name, Mode: int64(m.mode.Perm()), Size: int64(len(m.data)), ModTime: at, Typeflag: tar.TypeReg,
			Uid: m.owner, Gid: m.owner, Format: tar.FormatUSTAR,
		}
		if m.mode.IsDir() {
			h.Typeflag, h.Name = tar.TypeDir, m.name+"/"
		}
		err := t.WriteHeader(h)
		if err == nil {
			_, err = t.Write(m.data)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return t.Close()
}

func writeZip(w io.Writer, members []member, r release) error {
	z := zip.NewWriter(w)
	for _, m := range inFolder(r.folderOf(), members) {
		h := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: r.at}
		h.SetMode(m.mode)
		f, err := z.CreateHeader(h)
		if err == nil {
			_, err = f.Write(m.data)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return z.Close()
}

// sumsName is the name of the file with the checksums.
const sumsName = "SHA256SUMS"

// sums prints the SHA-256 of each file in a folder except SHA256SUMS, sorted by name, in the format
// of sha256sum and shasum.
func sums(folder string, out io.Writer) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("sums: %w", err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || e.Name() == sumsName {
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
