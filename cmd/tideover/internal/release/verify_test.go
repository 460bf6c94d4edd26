package main

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"debug/macho"
	"debug/pe"
	"encoding/binary"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"
)

// header returns the header of an executable file without contents.
func header(t *testing.T, platform string) string {
	t.Helper()
	system, arch, _ := strings.Cut(platform, "/")
	arm := arch == "arm64"
	var b bytes.Buffer
	add := func(v any, order binary.ByteOrder) {
		if err := binary.Write(&b, order, v); err != nil {
			t.Fatal(err)
		}
	}
	switch system {
	case "linux":
		h := elf.Header64{Ident: [16]byte{0x7f, 'E', 'L', 'F', 2, 1, 1}, Type: 2, Machine: uint16(elf.EM_X86_64), Version: 1, Ehsize: 64, Phentsize: 56, Shentsize: 64}
		if arm {
			h.Machine = uint16(elf.EM_AARCH64)
		}
		add(h, binary.LittleEndian)
	case "darwin":
		h := macho.FileHeader{Magic: macho.Magic64, Cpu: macho.CpuAmd64, Type: macho.TypeExec}
		if arm {
			h.Cpu = macho.CpuArm64
		}
		add(h, binary.LittleEndian)
		add(uint32(0), binary.LittleEndian)
	case "windows":
		dos := make([]byte, 96)
		copy(dos, "MZ")
		dos[0x3c] = 96
		b.Write(dos)
		b.WriteString("PE\x00\x00")
		h := pe.FileHeader{Machine: pe.IMAGE_FILE_MACHINE_AMD64}
		if arm {
			h.Machine = pe.IMAGE_FILE_MACHINE_ARM64
		}
		add(h, binary.LittleEndian)
	}
	return b.String()
}

// contents returns what stands in the folder of an archive.
func contents(t *testing.T, platform string) map[string]string {
	t.Helper()
	files := maps.Clone(system)
	maps.DeleteFunc(files, func(name, _ string) bool {
		return strings.HasPrefix(name, "systemd/") && !strings.HasPrefix(platform, "linux/") ||
			strings.HasPrefix(name, "man/") && strings.HasPrefix(platform, "windows/")
	})
	delete(files, "tideover")
	files[executableName(strings.Split(platform, "/")[0])] = header(t, platform)
	return files
}

// put packs files into a file of the release.
func put(t *testing.T, dist, name string, files map[string]string) {
	t.Helper()
	if err := pack(filepath.Join(dist, name), folder(t, 0o600, time.Unix(1e9, 0), files), released); err != nil {
		t.Fatal(err)
	}
}

// writeRelease writes a release without an SBOM.
func writeRelease(t *testing.T) (dist string) {
	t.Helper()
	dist = t.TempDir()
	for _, p := range platforms {
		name, files := "tideover_0.1.0_"+strings.Replace(p, "/", "_", 1), contents(t, p)
		if strings.HasPrefix(p, "windows/") {
			put(t, dist, name+".zip", files)
			continue
		}
		put(t, dist, name+".tar.gz", files)
		if strings.HasPrefix(p, "linux/") {
			put(t, dist, name+".deb", files)
			put(t, dist, name+".rpm", files)
			putImage(t, dist, name+".oci.tar", p)
		}
	}
	text, err := formula("../../../../packaging/tideover.rb.tmpl", dist, "0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dist, "tideover.rb"), string(text))
	sumUp(t, dist)
	return dist
}

func putImage(t *testing.T, dist, name, platform string) {
	t.Helper()
	files := maps.Clone(image)
	files["usr/bin/tideover"] = header(t, platform)
	dir := folder(t, 0o600, time.Unix(1e9, 0), files)
	if err := os.Chmod(filepath.Join(dir, "usr/bin/tideover"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := pack(filepath.Join(dist, name), dir, released); err != nil {
		t.Fatal(err)
	}
}

func sumUp(t *testing.T, dist string) {
	t.Helper()
	var out bytes.Buffer
	if err := sums(dist, &out); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dist, sumsName), out.String())
}

func TestAReleaseIsVerified(t *testing.T) {
	t.Parallel()
	dist := writeRelease(t)
	var out bytes.Buffer
	if err := run([]string{"verify", dist}, &out); err != nil {
		t.Error(err)
	}
	for _, want := range []string{
		"tideover_0.1.0_darwin_arm64.tar.gz: 10 files, an executable for darwin/arm64\n", "tideover_0.1.0_linux_arm64.rpm: 11 files, an executable for linux/arm64\n",
		"tideover_0.1.0_windows_amd64.zip: 7 files, an executable for windows/amd64\n", "tideover.rb: all URLs are of archives with these checksums\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("verify prints no %q:\n%s", want, out.String())
		}
	}
	for _, tt := range []struct {
		change func(string)
		want   string
	}{
		{func(d string) { write(t, filepath.Join(d, "more"), "") }, "more: more is not the name"},
		{func(d string) { put(t, d, "tideover_0.1.0_linux_amd64.tar.gz", contents(t, "linux/arm64")) }, `amd64.tar.gz: the executable is one for "linux/arm64"`},
		{func(d string) { put(t, d, "tideover_0.1.0_windows_amd64.zip", contents(t, "linux/amd64")) }, `the executable is one for ""`},
		{func(d string) { put(t, d, "tideover_0.1.0_linux_arm64.deb", contents(t, "linux/amd64")) }, "arm64.deb: usr/bin/tideover is missing, or differs"},
		{func(d string) {
			files := contents(t, "linux/arm64")
			delete(files, "LICENSE")
			files["man/man1/tideover-more.1"] = "page"
			put(t, d, "tideover_0.1.0_linux_arm64.rpm", files)
		}, "usr/share/doc/tideover/LICENSE is missing, or differs from the archive's\nusr/share/man/man1/tideover-more.1.gz is not of the archive"},
		{func(d string) {
			files := contents(t, "darwin/arm64")
			files["LICENSE"] = ""
			put(t, d, "tideover_0.1.0_darwin_arm64.tar.gz", files)
		}, "darwin_arm64.tar.gz: LICENSE is missing or empty"},
		{func(d string) {
			files := contents(t, "darwin/arm64")
			files["notes"] = "text"
			put(t, d, "tideover_0.1.0_darwin_arm64.tar.gz", files)
		}, "notes should not be there"},
		{func(d string) { putImage(t, d, "tideover_0.1.0_linux_arm64.oci.tar", "linux/amd64") }, "arm64.oci.tar: it has another binary than the archive"},
		{func(d string) {
			files := contents(t, "darwin/arm64")
			files["LICENSE"] = "other terms"
			put(t, d, "tideover_0.1.0_darwin_arm64.tar.gz", files)
		}, "tideover.rb: the checksum of tideover_0.1.0_darwin_arm64.tar.gz is not that of the archive"},
		{func(d string) { write(t, filepath.Join(d, "tideover.rb"), "class Tideover") }, "tideover.rb: 0 archives, want 4"},
		{func(d string) { write(t, filepath.Join(d, "tideover_0.1.0.spdx.json"), "{}") }, "tideover_0.1.0.spdx.json: tideover_0.1.0_darwin_amd64.tar.gz"},
	} {
		changed := t.TempDir()
		if err := os.CopyFS(changed, os.DirFS(dist)); err != nil {
			t.Fatal(err)
		}
		tt.change(changed)
		if err := verify(changed, &out); err == nil || !strings.Contains(err.Error(), "SHA256SUMS is not that of the files") {
			t.Errorf("changed without new checksums: %v, want %q", err, tt.want)
		}
		sumUp(t, changed)
		if err := verify(changed, &out); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("verify = %v\nwant %q", err, tt.want)
		}
	}
}

// buildOfAll is the build information of a command that links all modules of THIRD_PARTY_LICENSES.
func buildOfAll(terms string) *buildinfo.BuildInfo {
	b := &buildinfo.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: own + "/cmd/tideover", Version: "v0.1.0"}}
	b.Deps = append(b.Deps, &debug.Module{Path: own, Version: "v0.1.0"}, &debug.Module{Path: own + "/engine", Version: "v0.1.0"})
	for use := range licensesIn(terms) {
		if path, version, ok := strings.Cut(use, " v"); ok {
			b.Deps = append(b.Deps, &debug.Module{Path: path, Version: "v" + version})
		}
	}
	return b
}

func TestEachModuleHasVersionAndLicence(t *testing.T) {
	t.Parallel()
	terms, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	build := buildOfAll(string(terms))
	list, err := components(build, string(terms))
	if err != nil {
		t.Fatal(err)
	}
	if len(build.Deps) < 30 || len(list) < len(build.Deps)+2 { // Go and the scripts of the page come on top
		t.Errorf("%d components of %d modules", len(list), len(build.Deps))
	}
	expression := regexp.MustCompile(`^[A-Za-z0-9.-]+( AND [A-Za-z0-9.-]+)*$`)
	for _, c := range list {
		if p := c.spdx("LIBRARY"); p.Name == "" || p.Version == "" || !expression.MatchString(p.LicenseDeclared) {
			t.Errorf("%+v", p)
		}
	}
	for _, want := range []component{
		{own + "/engine", "v0.1.0", "Apache-2.0", "pkg:golang/" + own + "/engine@v0.1.0"},
		{"Go, its standard library and its runtime", "1.26.8", "BSD-3-Clause", "pkg:golang/std@1.26.8"},
	} {
		if !slices.Contains(list, want) {
			t.Errorf("no %v in %v", want, list)
		}
	}
	for _, tt := range []struct{ licenses, want string }{
		{"Apache-2.0, BSD-3-Clause, notice", "Apache-2.0 AND BSD-3-Clause"}, {"MIT, public domain", "MIT AND LicenseRef-public-domain"},
	} {
		if got := (component{licenses: tt.licenses}).expression(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.licenses, got, tt.want)
		}
	}
	build.Deps = []*debug.Module{{Path: "example.com/new", Version: "v1.0.0"}}
	if _, err := components(build, string(terms)); err == nil || !strings.Contains(err.Error(), "example.com/new v1.0.0: no licence") {
		t.Errorf("a module without a licence: %v", err)
	}
	build.Deps[0].Replace = &debug.Module{Path: "../new"}
	if _, err := components(build, string(terms)); err == nil || !strings.Contains(err.Error(), "example.com/new is replaced") {
		t.Errorf("a module that is replaced: %v", err)
	}
}

// The SBOM of this test's own binary, which links two of our modules.
func TestTheSBOMListsWhatABinaryLinks(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	dist, out := t.TempDir(), t.TempDir()
	name := "tideover_0.1.0_" + runtime.GOOS + "_" + runtime.GOARCH
	dir := filepath.Join(out, name)
	write(t, filepath.Join(dir, "THIRD_PARTY_LICENSES"), "Go, its standard library and its runtime: BSD-3-Clause\nhtmx 4.0.0, on the page: 0BSD\nx v1: public domain\n====\n")
	write(t, filepath.Join(dir, executableName(runtime.GOOS)), string(program))
	text, err := sbom([]string{dir}, released)
	if err != nil {
		t.Fatal(err)
	}
	var b bill
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if b.Name != "tideover_0.1.0.spdx.json" || b.Version != "SPDX-2.3" || b.Creation["created"] != "2026-11-15T12:00:00Z" {
		t.Errorf("the document is %+v", b)
	}
	ids := map[string]bool{b.ID: true}
	for _, p := range b.Packages {
		if ids[p.ID] || !regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`).MatchString(p.ID) {
			t.Errorf("%s is there twice, or is no ID", p.ID)
		}
		ids[p.ID] = true
	}
	for _, r := range b.Relations {
		if !ids[r.From] || !ids[r.To] {
			t.Errorf("%+v has no package", r)
		}
	}
	if !ids["SPDXRef-htmx-4.0.0"] || !ids["SPDXRef-github.com-tideover-tideover-cmd-tideover-devel-"] {
		t.Errorf("only %v", ids)
	}
	if err := pack(filepath.Join(dist, name+".tar.gz"), dir, released); err != nil {
		t.Fatal(err)
	}
	sumUp(t, dist)
	sums, err := os.ReadFile(filepath.Join(dist, sumsName))
	if err != nil {
		t.Fatal(err)
	}
	if err := verifyBill(dist, text, sums); err != nil {
		t.Error(err)
	}
	other := bytes.Replace(text, []byte(`"CONTAINS"`), []byte(`"EXCLUDES"`), -1)
	if err := verifyBill(dist, other, sums); err == nil || !strings.Contains(err.Error(), "is not listed") {
		t.Errorf("an SBOM without modules: %v", err)
	}
}
