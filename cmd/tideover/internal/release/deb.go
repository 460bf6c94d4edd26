package main

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// What packages and the image say of tideover.
const (
	homepage    = "https://github.com/tideover/tideover"
	license     = "Apache-2.0"
	summary     = "retries commands, requests and workflows until they succeed"
	description = `tideover retries work until it is done: a command, an HTTP request, a session of
a coding assistant, a workflow that must survive a crash.`
)

// places maps the files of an archive to the files that packages install. A path that ends with a
// slash stands for all files below it. An empty rpm means the same as deb.
var places = []struct{ archive, deb, rpm string }{
	{"tideover", "usr/bin/tideover", ""},
	{"LICENSE", "usr/share/doc/tideover/copyright", "usr/share/doc/tideover/LICENSE"},
	{"THIRD_PARTY_LICENSES", "usr/share/doc/tideover/THIRD_PARTY_LICENSES", ""},
	{"completions/tideover.bash", "usr/share/bash-completion/completions/tideover", ""},
	{"completions/tideover.fish", "usr/share/fish/vendor_completions.d/tideover.fish", ""},
	{"completions/_tideover", "usr/share/zsh/vendor-completions/_tideover", "usr/share/zsh/site-functions/_tideover"},
	{"man/", "usr/share/man/", ""},
	{"systemd/user/", "usr/lib/systemd/user/", ""},
	{"systemd/", "usr/lib/systemd/system/", ""},
}

// notInstalled has no place, because PowerShell has no folder for completions.
const notInstalled = "completions/tideover.ps1"

var execStart = regexp.MustCompile(`(?m)^ExecStart=\S+`)

// installed returns what a package installs of the files of an archive: a manual that is compressed,
// and units that start the installed command.
func installed(files []member, rpm bool) (list []member, err error) {
	for _, m := range files {
		if m.name == notInstalled {
			continue
		}
		from := m.name
		for _, p := range places {
			if rest, ok := strings.CutPrefix(from, p.archive); ok && (rest == "" || strings.HasSuffix(p.archive, "/")) {
				m.name = p.deb + rest
				if rpm && p.rpm != "" {
					m.name = p.rpm + rest
				}
				break
			}
		}
		switch {
		case m.name == from:
			return nil, fmt.Errorf("packages have no place for %s", from)
		case strings.HasPrefix(from, "man/"):
			m.name, m.data = m.name+".gz", compress(m.data)
		case strings.HasPrefix(from, "systemd/"):
			_, unit, _ := bytes.Cut(m.data, []byte("\n")) // the first line names the file to write it to
			m.data = execStart.ReplaceAll(unit, []byte("ExecStart=/usr/bin/tideover"))
		}
		list = append(list, m)
	}
	return list, nil
}

// compress returns the data in the format of gzip.
func compress(data []byte) []byte {
	var out bytes.Buffer
	z, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level exists
	_, _ = z.Write(data)                                    // a buffer takes everything
	_ = z.Close()
	return out.Bytes()
}

// packageVersion returns a version that dpkg and rpm sort as Go does: before 0.1.0 comes 0.1.0~rc1.
func packageVersion(version string) string { return strings.ReplaceAll(version, "-", "~") }

// writeDeb writes a package of Debian: an ar archive of two tar archives. It has no scripts.
func writeDeb(w io.Writer, files []member, r release) error {
	files, err := installed(files, false)
	if err != nil {
		return err
	}
	var sums strings.Builder
	size := 0
	for _, f := range files {
		size += len(f.data)
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.data), f.name)
	}
	control := fmt.Sprintf(`Package: tideover
Version: %s
Architecture: %s
Maintainer: The tideover authors <%s>
Installed-Size: %d
Recommends: ca-certificates
Section: utils
Priority: optional
Homepage: %s
Description: %s
 %s
`, packageVersion(r.version), r.arch, homepage, (size+1023)/1024, homepage, summary, strings.ReplaceAll(description, "\n", "\n "))
	var controls, data bytes.Buffer
	err = errors.Join(
		writeTarGz(&controls, []member{{name: "./control", mode: 0o644, data: []byte(control)}, {name: "./md5sums", mode: 0o644, data: []byte(sums.String())}}, r.at),
		writeTarGz(&data, inFolder("./", withFolders(files)), r.at),
	)
	out := bytes.NewBufferString("!<arch>\n")
	for _, part := range []member{
		{name: "debian-binary", data: []byte("2.0\n")}, {name: "control.tar.gz", data: controls.Bytes()}, {name: "data.tar.gz", data: data.Bytes()},
	} {
		fmt.Fprintf(out, "%-16s%-12d%-6d%-6d%-8s%-10d`\n%s%s", part.name, r.at.Unix(), 0, 0, "100644", len(part.data), part.data, "\n"[:len(part.data)%2])
	}
	_, writeErr := w.Write(out.Bytes())
	return errors.Join(err, writeErr)
}

// readDeb returns what the package installs.
func readDeb(data []byte) ([]member, error) {
	data, ok := bytes.CutPrefix(data, []byte("!<arch>\n"))
	for ok && len(data) >= 60 {
		name := strings.TrimSpace(string(data[:16]))
		size, err := strconv.Atoi(strings.TrimSpace(string(data[48:58])))
		if err != nil || size < 0 || 60+size > len(data) {
			break
		}
		if name == "data.tar.gz" {
			members, err := readTarGz(data[60 : 60+size])
			for i, m := range members {
				members[i].name = strings.TrimPrefix(m.name, "./")
			}
			return members, err
		}
		data = data[min(60+size+size%2, len(data)):]
	}
	return nil, errors.New("this is not a package of Debian")
}
