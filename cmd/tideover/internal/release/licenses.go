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

// own is the path of our own modules. Their licence is a separate file beside the binary.
const own = "github.com/tideover/tideover"

// platforms are the released platforms. They link different packages.
var platforms = []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64", "windows/arm64"}

// licenseName matches the names of files with licence terms, including those with a prefix or suffix,
// such as LICENSE-3RD-PARTY.md.
var licenseName = lazyregexp.New(`(?i)^(\w+-)?(un)?(licen[sc]es?|copying|notice|copyright)([-._].*)?$`)

// pkg describes a linked package, as go list prints it.
type pkg struct {
	Dir    string
	Module *struct{ Path, Version, Dir string }
}

// terms is a licence text and the components that have it.
type terms struct {
	kind string   // name of the licence, such as MIT
	text string   // text of the licence file
	uses []string // components
}

// licenses returns the texts of all licences of the command in the folder: of the packages that are
// linked on any platform, of Go, and of embedded files.
func licenses(folder string) (string, error) {
	files := map[string][]string{} // licence files by component
	for _, p := range platforms {
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

// linked adds to files the licence files of the modules that are linked on a platform.
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

// list returns the package of the command and all packages that it imports. It ignores the
// workspace, in which modules may have higher versions than in a release.
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
// the folder of its module: some packages have other authors than their module.
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

// isTerms reports whether the name is that of a licence file. The terms of a logo do not count,
// since no logo is linked.
func isTerms(name string) bool {
	return licenseName.MatchString(name) && filepath.Ext(name) != ".go" && !strings.HasSuffix(name, "-LOGO")
}

// embedded adds the licence files of Go and of the scripts of the web page.
func embedded(folder string, files map[string][]string) error {
	files["Go, its standard library and its runtime"] = []string{filepath.Join(folder, "internal/release/go.LICENSE")}
	found, err := filepath.Glob(filepath.Join(folder, "../../internal/console/pages/static/*.LICENSE"))
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

const head = `What is linked into the tideover binary or embedded in it, on any platform, and the
terms it comes under. Generated from the packages of the binary by "make licenses".
`

// known has phrases that identify licences, the more specific ones first. A text without any of
// them must be checked by a person, and so must a licence that requires users to publish their
// source.
var known = []struct{ kind, phrase string }{
	{"MPL-2.0", "mozilla public license"},
	{"Apache-2.0", "apache license version 2.0"},
	{"BSD-3-Clause", "neither the name of"},
	{"BSD-3-Clause", "the names of its contributors may not be used"},
	{"BSD-2-Clause", "redistribution and use in source and binary forms"},
	{"MIT", "permission is hereby granted, free of charge"},
	{"ISC", "provided that the above copyright notice and this permission notice appear in all copies"},
	{"0BSD", "permission to use, copy, modify, and/or distribute this software for any purpose with or without fee is hereby granted."},
	{"public domain", "public domain"},
}

// kindOf returns the name of the licence in a file with this name and text; "" if it is unknown. A
// notice is recognised by the name of its file.
func kindOf(name, text string) string {
	if name == "LICENSE-3RD-PARTY.md" {
		return kindOfCollection(text)
	}
	plain := strings.Join(strings.Fields(strings.ToLower(text)), " ")
	plain = strings.ReplaceAll(plain, "license, version", "license version")
	if strings.Contains(plain, "gnu general public license") || strings.Contains(plain, "gnu affero") {
		return ""
	}
	for _, k := range known {
		if strings.Contains(plain, k.phrase) {
			return k.kind
		}
	}
	if strings.HasPrefix(strings.ToLower(name), "notice") {
		return "notice"
	}
	return ""
}

// kindOfCollection is kindOf for a file with the terms of all parts of a module of modernc.org. The
// first section of the file lists the parts that are linked; the others list parts for tests.
func kindOfCollection(text string) string {
	linked, _, _ := strings.Cut(text, "\n## 2.")
	if linked = strings.ToLower(linked); strings.Contains(linked, "gpl") || strings.Contains(linked, "gnu general public") || strings.Contains(linked, "gnu affero") {
		return ""
	}
	return "notices of others"
}

// tidy removes differences in white space.
func tidy(text string) string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	for i, line := range lines {
		lines[i] = strings.TrimRight(line, " \t\f")
	}
	return strings.Trim(strings.Join(lines, "\n"), "\n") + "\n"
}

// render renders the list of components with their licences, and the texts.
func render(list []*terms) string {
	kinds := map[string][]string{}
	var texts strings.Builder
	for _, t := range list {
		for _, use := range t.uses {
			kinds[use] = append(kinds[use], t.kind)
		}
		fmt.Fprintf(&texts, "\n%s\n%s\n\n%s", strings.Repeat("=", 80), strings.Join(t.uses, "\n"), t.text)
	}
	var uses strings.Builder
	for _, use := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&uses, "%s: %s\n", use, strings.Join(slices.Compact(slices.Sorted(slices.Values(kinds[use]))), ", "))
	}
	return head + "\n" + uses.String() + texts.String()
}
