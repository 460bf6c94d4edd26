package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// verify reads the files of a release back. It prints a line for each, and returns what is wrong.
func verify(dist string, out io.Writer) error {
	var actual bytes.Buffer
	if err := sums(dist, &actual); err != nil {
		return err
	}
	stated, err := os.ReadFile(filepath.Join(dist, sumsName))
	if err != nil {
		return err
	}
	if !bytes.Equal(stated, actual.Bytes()) {
		return fmt.Errorf("%s is not that of the files:\n%s", sumsName, actual.Bytes())
	}
	for line := range strings.Lines(string(stated)) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		found, wrong := verifyFile(dist, name, stated)
		if wrong != nil {
			wrong = fmt.Errorf("%s: %w", name, wrong)
		} else {
			fmt.Fprintf(out, "%s: %s\n", name, found)
		}
		err = errors.Join(err, wrong)
	}
	return err
}

// verifyFile says what a file has, or what is wrong with it.
func verifyFile(dist, name string, sums []byte) (string, error) {
	switch filepath.Ext(name) {
	case ".rb":
		text, err := os.ReadFile(filepath.Join(dist, name))
		return "all URLs are of archives with these checksums", errors.Join(err, verifyFormula(string(text), sums))
	case ".json":
		text, err := os.ReadFile(filepath.Join(dist, name))
		return "each binary and each of its modules", errors.Join(err, verifyBill(dist, text, sums))
	}
	members, r, err := read(filepath.Join(dist, name))
	if err != nil {
		return "", err
	}
	ext := ".tar.gz"
	if r.system == "windows" {
		ext = ".zip"
	}
	archive, _, err := read(filepath.Join(dist, filepath.Base(r.folderOf())+ext))
	if err != nil {
		return "", err
	}
	binary := filesOf(archive)[executableName(r.system)]
	if is := executable(binary.data); is != r.system+"/"+r.arch || binary.mode.Perm() != 0o755 {
		return "", fmt.Errorf("the executable is one for %q with mode %v", is, binary.mode)
	}
	switch {
	case strings.HasSuffix(name, ext):
		err = verifyArchive(archive, r.system)
	case strings.HasSuffix(name, ".oci.tar"):
		err = verifyImage(members, binary)
	default:
		var want []member
		if want, err = installed(archive, strings.HasSuffix(name, ".rpm")); err == nil {
			err = sameFiles(members, want)
		}
	}
	return fmt.Sprintf("%d files, an executable for %s/%s", len(filesOf(members)), r.system, r.arch), err
}

// filesOf returns the files by their names, without folders.
func filesOf(members []member) map[string]member {
	files := map[string]member{}
	for _, m := range members {
		if !m.mode.IsDir() {
			files[m.name] = m
		}
	}
	return files
}

// sameFiles says which files differ from those that are wanted.
func sameFiles(got, want []member) (err error) {
	files := filesOf(got)
	for _, w := range want {
		if g, ok := files[w.name]; !ok || !bytes.Equal(g.data, w.data) || g.mode.Perm() != w.mode.Perm() || g.owner != w.owner {
			err = errors.Join(err, fmt.Errorf("%s is missing, or differs from the archive's", w.name))
		}
		delete(files, w.name)
	}
	for name := range files {
		err = errors.Join(err, fmt.Errorf("%s is not of the archive", name))
	}
	return err
}

// verifyArchive checks the list of files.
func verifyArchive(members []member, system string) error {
	want := []string{
		executableName(system), "LICENSE", "THIRD_PARTY_LICENSES",
		"completions/_tideover", "completions/tideover.bash", "completions/tideover.fish", "completions/tideover.ps1",
	}
	if system == "linux" {
		want = append(want, "systemd/tideover.service", "systemd/user/tideover.service")
	}
	if system != "windows" {
		want = append(want, "man/man1/tideover.1", "man/man1/tideover-serve.1", "man/man7/tideover-policy.7")
	}
	files := filesOf(members)
	for _, name := range want {
		if len(files[name].data) == 0 {
			return fmt.Errorf("%s is missing or empty", name)
		}
	}
	for name := range files {
		if !slices.Contains(want, name) && (system == "windows" || !strings.HasPrefix(name, "man/")) {
			return fmt.Errorf("%s should not be there", name)
		}
	}
	return nil
}

// verifyImage checks that the image has the binary of the archive, and what serve needs.
func verifyImage(members []member, binary member) error {
	files := filesOf(members)
	if !bytes.Equal(files["usr/bin/tideover"].data, binary.data) || files["usr/bin/tideover"].mode.Perm() != 0o755 {
		return errors.New("it has another binary than the archive")
	}
	if !bytes.HasPrefix(files["etc/ssl/certs/ca-certificates.crt"].data, []byte("-----BEGIN CERTIFICATE-----\n")) {
		return errors.New("it has no certificates")
	}
	for _, name := range imageFolders {
		if !slices.ContainsFunc(members, func(m member) bool { return m.name == name && m.mode.IsDir() && m.owner == imageUser }) {
			return fmt.Errorf("its user has no folder /%s", name)
		}
	}
	return nil
}

var formulaArchive = regexp.MustCompile(`url "[^"]*/releases/download/v[^"/]+/([^"/]+)"\s+sha256 "([0-9a-f]+)"`)

// verifyFormula checks that the formula has four archives, with their checksums.
func verifyFormula(text string, sums []byte) error {
	found := formulaArchive.FindAllStringSubmatch(text, -1)
	if len(found) != 4 {
		return fmt.Errorf("%d archives, want 4", len(found))
	}
	for _, f := range found {
		if !bytes.Contains(sums, []byte(f[2]+"  "+f[1]+"\n")) {
			return fmt.Errorf("the checksum of %s is not that of the archive", f[1])
		}
	}
	return nil
}

// verifyBill checks that the SBOM has the binary of each archive, and for each of its modules the
// version and a licence.
func verifyBill(dist string, text, sums []byte) error {
	var b bill
	if err := json.Unmarshal(text, &b); err != nil {
		return err
	}
	packages := map[string]spdxPackage{}
	binaries := map[string]string{} // IDs by checksum
	for _, p := range b.Packages {
		packages[p.ID] = p
		for _, c := range p.Checksums {
			binaries[c.Value] = p.ID
		}
	}
	for line := range strings.Lines(string(sums)) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if !strings.HasSuffix(name, ".tar.gz") && !strings.HasSuffix(name, ".zip") {
			continue
		}
		members, r, err := read(filepath.Join(dist, name))
		if err != nil {
			return err
		}
		binary := filesOf(members)[executableName(r.system)].data
		info, err := buildinfo.Read(bytes.NewReader(binary))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		id := binaries[digest(binary)]
		listed := map[string]bool{}
		for _, rel := range b.Relations {
			if p := packages[rel.To]; rel.From == id && rel.Type == "CONTAINS" && p.LicenseDeclared != "" {
				listed[p.Name+" "+p.Version] = true
			}
		}
		for _, m := range append(info.Deps, &info.Main) {
			if !listed[m.Path+" "+m.Version] {
				return fmt.Errorf("%s %s of %s is not listed", m.Path, m.Version, name)
			}
		}
	}
	return nil
}

// executable returns the system and the machine of the header of an executable file.
func executable(data []byte) string {
	r := bytes.NewReader(data)
	if f, err := elf.NewFile(r); err == nil {
		return "linux/" + map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}[f.Machine]
	}
	if f, err := macho.NewFile(r); err == nil {
		return "darwin/" + map[macho.Cpu]string{macho.CpuAmd64: "amd64", macho.CpuArm64: "arm64"}[f.Cpu]
	}
	if f, err := pe.NewFile(r); err == nil {
		return "windows/" + map[uint16]string{pe.IMAGE_FILE_MACHINE_AMD64: "amd64", pe.IMAGE_FILE_MACHINE_ARM64: "arm64"}[f.Machine]
	}
	return ""
}
