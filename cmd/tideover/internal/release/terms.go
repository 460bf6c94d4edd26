package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

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

// kindOf returns the name of a licence; "" if it is unknown. A notice is recognised by its file
// name.
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

// kindOfCollection returns the kind of a file with the terms of all parts of a module of
// modernc.org. Its first section lists what is linked; the others list what its tests use.
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
