package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// own is the path of our modules, whose licence is beside the binary.
const own = "github.com/tideover/tideover"

// platforms returns the released platforms. They link different packages.
func platforms() []string {
	return []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}
}

// licenseName matches the names of files with licence terms, also in packages that contain code of
// others.
var licenseName = lazyregexp.New(`(?i)^(\w+-)?(un)?(licen[sc]es?|copying|notice|copyright)([-._].*)?$`)

// pkg is the output of go list for a linked package.
type pkg struct {
	Dir    string
	Module *struct{ Path, Version, Dir string }
}

// terms is a licence text and everything that is used under it.
type terms struct {
	kind string
	text string
	uses []string
}

// licenses returns the texts of all licences of the command in the folder: of the packages that are
// linked on any platform, of Go, and of embedded files.
func licenses(folder string) (string, error) {
	files := map[string][]string{} // licence files by component
	for _, p := range platforms() {
		if err := linked(folder, p, files); err != nil {
			return "", err
		}
	}
	if err := embedded(folder, files); err != nil {
		return "", err
	}
	list, err := gather(files)
	if err != nil {
		return "", err
	}
	return render(list), nil
}

// linked adds the modules of the packages that are linked on a platform.
func linked(folder, platform string, files map[string][]string) error {
	packages, err := list(folder, platform)
	if err != nil {
		return fmt.Errorf("licenses of %s on %s: %w", folder, platform, err)
	}
	for _, p := range packages {
		if m := p.Module; m != nil && m.Path != own && !strings.HasPrefix(m.Path, own+"/") {
			name := m.Path + " " + m.Version
			files[name] = append(files[name], termsAbove(p.Dir, m.Dir)...)
		}
	}
	return nil
}

// list returns the packages of the command and all that they import. It ignores the workspace,
// which raises versions above those that are released.
func list(folder, platform string) (packages []pkg, err error) {
	system, machine, _ := strings.Cut(platform, "/")
	cmd := exec.Command("go", "list", "-deps", "-json=Dir,Module", ".") //nolint:noctx // ends by itself
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+machine)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w: %s", err, stderr.String())
	}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return packages, nil
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		packages = append(packages, p)
	}
}

// termsAbove returns the licence files in the folder of a package and in its parent folders, up to
// its module: some packages have authors of their own.
func termsAbove(dir, module string) (files []string) {
	for ; strings.HasPrefix(dir, module); dir = filepath.Dir(dir) {
		entries, _ := os.ReadDir(dir) // exists: go list returned it
		for _, e := range entries {
			if e.Type().IsRegular() && isTerms(e.Name()) {
				files = append(files, filepath.Join(dir, e.Name()))
			}
		}
	}
	return files
}

// isTerms reports whether the name is that of a licence file. A logo has its own terms, and is not
// linked.
func isTerms(name string) bool {
	return licenseName.MatchString(name) && filepath.Ext(name) != ".go" && !strings.HasSuffix(name, "-LOGO")
}

// embedded adds Go and the scripts of the web page, whose licences are beside them.
func embedded(folder string, files map[string][]string) error {
	files["Go, its standard library and its runtime"] = []string{filepath.Join(folder, "internal/release/go.LICENSE")}
	found, err := filepath.Glob(filepath.Join(folder, "internal/web/static/*.LICENSE"))
	if err != nil || len(found) == 0 {
		return fmt.Errorf("licenses of the web page: found %d: %w", len(found), err)
	}
	for _, f := range found {
		name := strings.TrimSuffix(filepath.Base(f), ".LICENSE")
		files[strings.Replace(name, "-", " ", 1)+", on the page"] = []string{f}
	}
	return nil
}

// gather reads the files and groups components with the same text.
func gather(files map[string][]string) ([]*terms, error) {
	byText := map[string]*terms{}
	var list []*terms
	for _, use := range slices.Sorted(maps.Keys(files)) {
		paths := slices.Compact(slices.Sorted(slices.Values(files[use])))
		if len(paths) == 0 {
			return nil, fmt.Errorf("licenses: %s has no licence file", use)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("licenses of %s: %w", use, err)
			}
			text := tidy(string(data))
			t := byText[text]
			if t == nil {
				if t = (&terms{kind: kindOf(filepath.Base(path), text), text: text}); t.kind == "" {
					return nil, fmt.Errorf("licenses of %s: %s is an unknown licence: check whether we may use it", use, filepath.Base(path))
				}
				byText[text], list = t, append(list, t)
			}
			if !slices.Contains(t.uses, use) {
				t.uses = append(t.uses, use)
			}
		}
	}
	return list, nil
}
