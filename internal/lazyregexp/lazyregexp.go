// Package lazyregexp has regular expressions that are compiled when they are first used.
//
// A regular expression in a variable of a package is compiled before main, by every program
// that imports the package, whether it is used or not. A program with a hundred of them pays
// milliseconds and megabytes at each start.
package lazyregexp

import (
	"os"
	"regexp"
	"strings"
	"sync"
)

// Regexp is a regular expression that is compiled at its first use. Its methods are those of
// [regexp.Regexp], and safe for concurrent use.
type Regexp struct {
	text    string
	compile func() *regexp.Regexp
}

// New returns the regular expression. Its first use panics if the text can't be compiled. In
// a test binary New itself compiles it and panics, so that the tests of a package check all
// of its expressions.
func New(text string) *Regexp {
	r := newLazy(text)
	if inTest {
		r.compile()
	}
	return r
}

// inTest reports whether this program is the binary of a test. [testing.Testing] would make
// package testing a part of every program.
var inTest = len(os.Args) > 0 && strings.HasSuffix(strings.TrimSuffix(os.Args[0], ".exe"), ".test")

func newLazy(text string) *Regexp {
	return &Regexp{text: text, compile: sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })}
}

// String returns the text of the expression, and compiles nothing.
func (r *Regexp) String() string { return r.text }

// Match is [regexp.Regexp.Match].
func (r *Regexp) Match(b []byte) bool { return r.compile().Match(b) }

// MatchString is [regexp.Regexp.MatchString].
func (r *Regexp) MatchString(s string) bool { return r.compile().MatchString(s) }

// FindString is [regexp.Regexp.FindString].
func (r *Regexp) FindString(s string) string { return r.compile().FindString(s) }

// FindStringSubmatch is [regexp.Regexp.FindStringSubmatch].
func (r *Regexp) FindStringSubmatch(s string) []string { return r.compile().FindStringSubmatch(s) }

// FindStringSubmatchIndex is [regexp.Regexp.FindStringSubmatchIndex].
func (r *Regexp) FindStringSubmatchIndex(s string) []int {
	return r.compile().FindStringSubmatchIndex(s)
}

// FindAllStringSubmatch is [regexp.Regexp.FindAllStringSubmatch].
func (r *Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return r.compile().FindAllStringSubmatch(s, n)
}

// FindAllStringSubmatchIndex is [regexp.Regexp.FindAllStringSubmatchIndex].
func (r *Regexp) FindAllStringSubmatchIndex(s string, n int) [][]int {
	return r.compile().FindAllStringSubmatchIndex(s, n)
}

// SubexpIndex is [regexp.Regexp.SubexpIndex].
func (r *Regexp) SubexpIndex(name string) int { return r.compile().SubexpIndex(name) }

// ReplaceAll is [regexp.Regexp.ReplaceAll].
func (r *Regexp) ReplaceAll(src, with []byte) []byte { return r.compile().ReplaceAll(src, with) }

// FindAllStringIndex is [regexp.Regexp.FindAllStringIndex].
func (r *Regexp) FindAllStringIndex(s string, n int) [][]int {
	return r.compile().FindAllStringIndex(s, n)
}

// ReplaceAllString is [regexp.Regexp.ReplaceAllString].
func (r *Regexp) ReplaceAllString(src, with string) string {
	return r.compile().ReplaceAllString(src, with)
}

// ReplaceAllStringFunc is [regexp.Regexp.ReplaceAllStringFunc].
func (r *Regexp) ReplaceAllStringFunc(src string, with func(string) string) string {
	return r.compile().ReplaceAllStringFunc(src, with)
}
