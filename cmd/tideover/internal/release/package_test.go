package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// listing returns the names, modes, owners and texts of files and folders.
func listing(t *testing.T, members []member) (list []string) {
	t.Helper()
	for _, m := range members {
		text := m.data
		if strings.HasSuffix(m.name, ".gz") {
			z, err := gzip.NewReader(bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			if text, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
		}
		kind := "file"
		if m.mode.IsDir() {
			kind = "folder"
		}
		list = append(list, strings.TrimSpace(fmt.Sprintf("%s %s %o %d %s", kind, m.name, m.mode.Perm(), m.owner, strings.ReplaceAll(string(text), "\n", "|"))))
	}
	return list
}

func TestPackagesInstallWhatTheArchiveHas(t *testing.T) {
	t.Parallel()
	dir := folder(t, 0o600, time.Unix(1e9, 0), system)
	both := []string{
		"file usr/bin/tideover 755 0 program",
		"file usr/lib/systemd/system/tideover.service 644 0 [Service]|ExecStart=/usr/bin/tideover serve|",
		"file usr/lib/systemd/user/tideover.service 644 0 [Service]|ExecStart=/usr/bin/tideover serve --config x|",
		"file usr/share/bash-completion/completions/tideover 644 0 bash",
		"file usr/share/doc/tideover/THIRD_PARTY_LICENSES 644 0 terms of others|====|",
		"file usr/share/fish/vendor_completions.d/tideover.fish 644 0 fish",
		"file usr/share/man/man1/tideover-serve.1.gz 644 0 page of serve",
		"file usr/share/man/man1/tideover.1.gz 644 0 page",
		"file usr/share/man/man7/tideover-policy.7.gz 644 0 page of policies",
		"folder usr/share/doc/tideover 755 0",
	}
	for suffix, more := range map[string][]string{
		".deb": {"file usr/share/doc/tideover/copyright 644 0 terms", "file usr/share/zsh/vendor-completions/_tideover 644 0 zsh"},
		".rpm": {"file usr/share/doc/tideover/LICENSE 644 0 terms", "file usr/share/zsh/site-functions/_tideover 644 0 zsh"},
	} {
		file := filepath.Join(t.TempDir(), "tideover_0.1.0_linux_amd64"+suffix)
		if err := pack(file, dir, released); err != nil {
			t.Fatal(err)
		}
		members, _, err := read(file)
		if err != nil {
			t.Fatal(err)
		}
		// dpkg removes the folders of the system that no other package has; rpm would say that they are ours.
		members = slices.DeleteFunc(members, func(m member) bool { return suffix == ".deb" && m.mode.IsDir() && filepath.Base(m.name) != "tideover" })
		want := slices.Sorted(slices.Values(append(more, both...)))
		if got := slices.Sorted(slices.Values(listing(t, members))); !slices.Equal(got, want) {
			t.Errorf("%s installs\n%s\nwant\n%s", suffix, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// dpkg and rpm, where they are installed, read what we write. make release-check installs it.
func TestToolsReadThePackages(t *testing.T) {
	t.Parallel()
	dir, dist := folder(t, 0o600, time.Unix(1e9, 0), system), t.TempDir()
	for _, tt := range []struct {
		name string
		argv []string
		want string
	}{
		{"tideover_0.1.0_linux_arm64.deb", []string{"dpkg-deb", "--field", "FILE", "Version", "Architecture"}, "Version: 0.1.0\nArchitecture: arm64\n"},
		{"tideover_0.2.0-rc.1_linux_amd64.deb", []string{"dpkg-deb", "--field", "FILE", "Version"}, "0.2.0~rc.1\n"},
		{"tideover_0.1.0_linux_amd64.rpm", []string{"rpm", "-qp", "--qf", "%{NEVRA} %{LICENSE}\n", "FILE"}, "tideover-0.1.0-1.x86_64 Apache-2.0\n"},
		{"tideover_0.1.0_linux_arm64.rpm", []string{"rpm", "-qp", "--qf", "%{ARCH} [%{FILEUSERNAME}:%{FILEMODES:perms}:%{FILENAMES} ]\n", "FILE"}, "aarch64 root:-rwxr-xr-x:/usr/bin/tideover"},
		{"tideover_0.2.0-rc.1_linux_amd64.rpm", []string{"rpm", "-K", "--nosignature", "FILE"}, "digests OK\n"},
	} {
		file := filepath.Join(dist, tt.name)
		if err := pack(file, dir, released); err != nil {
			t.Fatal(err)
		}
		if _, err := exec.LookPath(tt.argv[0]); err != nil {
			t.Logf("%s is not installed; %s was only written", tt.argv[0], tt.name)
			continue
		}
		argv := slices.Clone(tt.argv)
		argv[slices.Index(argv, "FILE")] = file
		if argv[0] == "rpm" {
			argv = append(argv, "--dbpath", filepath.Join(dist, "db"))
		}
		out, err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).CombinedOutput()
		if err != nil || !strings.Contains(string(out), tt.want) {
			t.Errorf("%q: %v\n%s\nwant %s", argv, err, out, tt.want)
		}
	}
}

// image is what stands in the folder that becomes the image.
var image = map[string]string{
	"usr/bin/tideover": "program", "usr/share/doc/tideover/LICENSE": "terms", "etc/ssl/certs/ca-certificates.crt": "-----BEGIN CERTIFICATE-----\n",
}

func TestTheImageHasItsFiles(t *testing.T) {
	t.Parallel()
	members, err := readImage(packed(t, folder(t, 0o600, time.Unix(1e9, 0), image), ".oci.tar"))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"folder data 700 65532", "folder etc 755 0", "folder etc/ssl 755 0", "folder etc/ssl/certs 755 0",
		"file etc/ssl/certs/ca-certificates.crt 644 0 -----BEGIN CERTIFICATE-----|", "folder tmp 700 65532",
		"folder usr 755 0", "folder usr/bin 755 0", "file usr/bin/tideover 644 0 program", "folder usr/share 755 0", "folder usr/share/doc 755 0",
		"folder usr/share/doc/tideover 755 0", "file usr/share/doc/tideover/LICENSE 644 0 terms",
	}
	if got := listing(t, members); !slices.Equal(got, want) {
		t.Errorf("the image has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Docker reads the image by manifest.json, or by index.json as every other program. Both lead to
// the configuration, which is that of the Dockerfile.
func TestTheImageIsThatOfTheDockerfile(t *testing.T) {
	t.Parallel()
	files, err := readTar(bytes.NewReader(packed(t, folder(t, 0o600, time.Unix(1e9, 0), image), ".oci.tar")))
	if err != nil {
		t.Fatal(err)
	}
	parse := func(name string, to any) {
		t.Helper()
		if err := json.Unmarshal(filesOf(files)[name].data, to); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	type blob struct{ MediaType, Digest string }
	var docker []struct {
		Config           string
		RepoTags, Layers []string
	}
	var index struct{ Manifests []blob }
	var manifest struct {
		Config blob
		Layers []blob
	}
	parse("manifest.json", &docker)
	parse("index.json", &index)
	path := func(b blob) string { return "blobs/" + strings.Replace(b.Digest, ":", "/", 1) }
	parse(path(index.Manifests[0]), &manifest)
	if docker[0].Config != path(manifest.Config) || docker[0].Layers[0] != path(manifest.Layers[0]) || docker[0].RepoTags[0] != "tideover:0.1.0" {
		t.Errorf("manifest.json has %+v, the manifest of OCI %+v", docker[0], manifest)
	}
	var config struct {
		Architecture, OS string
		Config           struct {
			User, WorkingDir      string
			Env, Entrypoint, Cmd  []string
			Volumes, ExposedPorts map[string]struct{}
			Healthcheck           struct {
				Test                           []string
				Interval, Timeout, StartPeriod time.Duration
			}
		}
	}
	parse(docker[0].Config, &config)
	dockerfile, err := os.ReadFile("../../../../packaging/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	_, last, _ := strings.Cut(string(dockerfile), "\nFROM scratch\n")
	c := config.Config
	argv := func(a []string) string { return strings.ReplaceAll(string(encode(a)), ",", ", ") }
	for _, line := range []string{
		"USER " + c.User,
		"ENV " + strings.Join(c.Env[1:], " "), // the first is PATH, which Docker adds
		"VOLUME " + strings.Join(slices.Collect(maps.Keys(c.Volumes)), " "),
		"WORKDIR " + c.WorkingDir,
		"EXPOSE " + strings.TrimSuffix(strings.Join(slices.Collect(maps.Keys(c.ExposedPorts)), " "), "/tcp"),
		fmt.Sprintf("HEALTHCHECK --interval=%s --timeout=%s --start-period=%s CMD %s", c.Healthcheck.Interval, c.Healthcheck.Timeout, c.Healthcheck.StartPeriod, argv(c.Healthcheck.Test[1:])),
		"ENTRYPOINT " + argv(c.Entrypoint),
		"CMD " + argv(c.Cmd),
	} {
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(line) + `$`).MatchString(last) {
			t.Errorf("the image has %q, and the Dockerfile has no such line", line)
		}
	}
	if config.Architecture != "amd64" || config.OS != "linux" {
		t.Errorf("the image is for %s/%s", config.OS, config.Architecture)
	}
}
