package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const committed = "../../../../THIRD_PARTY_LICENSES"

func TestThirdPartyLicensesAreUpToDate(t *testing.T) {
	t.Parallel()
	want, err := licenses("../..")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(committed)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) == want {
		return
	}
	for _, line := range differing(string(got), want) {
		t.Error(line)
	}
	t.Error("THIRD_PARTY_LICENSES is not what the binary links: run make licenses")
}

// differing compares the lists at the beginning of two files, before the licence texts. It returns the
// lines that only one of them has.
func differing(got, want string) (lines []string) {
	got, _, _ = strings.Cut(got, "\n====")
	want, _, _ = strings.Cut(want, "\n====")
	for line := range strings.Lines(got) {
		if !strings.Contains(want, line) {
			lines = append(lines, "is there, and is not linked: "+line)
		}
	}
	for line := range strings.Lines(want) {
		if !strings.Contains(got, line) {
			lines = append(lines, "is linked, and is not there: "+line)
		}
	}
	return lines
}

func TestKindOfALicence(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ name, file, text, want string }{
		{"Apache, over several lines", "LICENSE", "  Apache License\n   Version 2.0, January 2004", "Apache-2.0"},
		{"three clauses", "LICENSE", "Redistribution and use in source and binary forms\n Neither the name of Google", "BSD-3-Clause"},
		{"two clauses", "LICENSE", "Redistribution and use in source and binary forms", "BSD-2-Clause"},
		{"MIT", "COPYING", "Permission is hereby granted, free of\ncharge, to any person", "MIT"},
		{"a notice", "NOTICE.txt", "Copyright 2012 The Author", "notice"},
		{"what asks users for their source", "LICENSE", "GNU GENERAL PUBLIC LICENSE\nVersion 3", ""},
		{"the same in a notice", "NOTICE", "under the GNU Affero General Public License", ""},
		{"a collection", "LICENSE-3RD-PARTY.md", "## 1. Linked\nMIT\n## 2. Not linked\nGNU General Public License", "notices of others"},
		{"a collection of what asks for the source", "LICENSE-3RD-PARTY.md", "## 1. Linked\nGPL-3.0\n## 2. Not linked\nMIT", ""},
		{"an unknown licence", "LICENSE", "You may use it on Tuesdays.", ""},
	} {
		if got := kindOf(tt.file, tt.text); got != tt.want {
			t.Errorf("%s: kindOf = %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestTermsAreFoundByName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"LICENSE": true, "LICENSE.txt": true, "LICENCE.md": true, "UNLICENSE": true, "COPYING": true, "NOTICE": true, "SQLITE-LICENSE": true,
		"COPYRIGHT-MUSL": true, "license.go": false, "LICENSE-LOGO": false, "README.md": false, "licensed": false,
	} {
		if got := isTerms(name); got != want {
			t.Errorf("isTerms(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestTermsOfAPackageCountBesideItsModules(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	module := filepath.Join(dir, "m")
	inner := filepath.Join(module, "inner")
	write(t, filepath.Join(dir, "LICENSE"), "not the module's")
	write(t, filepath.Join(module, "LICENSE"), "MIT: Permission is hereby granted, free of charge")
	write(t, filepath.Join(inner, "LICENSE"), "Redistribution and use in source and binary forms\r\n")
	list, err := gather(map[string][]string{"m v1": termsAbove(inner, module), "n v2": {filepath.Join(inner, "LICENSE")}})
	if err != nil {
		t.Fatal(err)
	}
	text := render(list)
	for _, part := range []string{"m v1: BSD-2-Clause, MIT\nn v2: BSD-2-Clause\n", "m v1\nn v2\n\nRedistribution and use in source and binary forms\n"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in:\n%s", part, text)
		}
	}
	for name, files := range map[string][]string{"has no licence file": nil, "is an unknown licence": {filepath.Join(dir, "LICENSE")}} {
		if _, err := gather(map[string][]string{"x v1": files}); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("gather(%q) = %v, want %q", files, err, name)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
