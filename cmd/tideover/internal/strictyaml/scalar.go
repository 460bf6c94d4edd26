package strictyaml

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
)

// The Read functions read a value of one form and record it. A value of any other form
// is a problem, for which they return the zero value.

// NamePattern is the regular expression of the names that a file defines, and NameRule
// the same in words.
const (
	NamePattern = `^[a-z0-9][a-z0-9_.-]{0,62}$`
	NameRule    = "want 1 to 63 lower-case letters, digits, hyphens, underscores and dots, the first a letter or digit"
)

var nameForm = lazyregexp.New(NamePattern)

// ValidName reports whether the text matches [NamePattern].
func ValidName(text string) bool { return nameForm.MatchString(text) }

// MaxQuoted is the number of characters of a value that a message quotes at most.
const MaxQuoted = 40

// ReadDuration reads a duration above zero, in the form that policies use.
func ReadDuration(at Place) time.Duration {
	s, ok := at.Text()
	if !ok {
		return 0
	}
	d, err := parseDuration(s)
	if err == nil && d == 0 {
		err = fmt.Errorf("%q: must be above zero", s)
	}
	if err != nil {
		at.Bad("%v", err)
		return 0
	}
	at.Record(s)
	return d
}

// ReadInt reads a whole number that is at least least.
func ReadInt(at Place, least int) int {
	s, ok := at.Text()
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || int(n) < least {
		at.Bad("%q is not a whole number of %d or more", s, least)
		return 0
	}
	at.Record(s)
	return int(n)
}

// ReadIntUpTo reads a whole number from 1 to most.
func ReadIntUpTo(at Place, most int) int {
	n := ReadInt(at, 1)
	if n > most {
		at.Bad("%d is more than %d", n, most)
	}
	return n
}

// sizePattern matches what [textfmt.ParseSize] reads, except 0 and terabytes.
const sizePattern = `^0*[1-9][0-9]*(KiB|MiB|GiB|kB|KB|MB|GB|B)?$`

var sizeForm = lazyregexp.New(sizePattern)

// ReadSize reads a number of bytes above zero: 500, 64KiB, 10MB.
func ReadSize(at Place) int64 {
	s, ok := at.Text()
	if !ok {
		return 0
	}
	n, ok := textfmt.ParseSize(s)
	if !ok || !sizeForm.MatchString(s) {
		at.Bad("%q is not a size such as 500kB, 64KiB or 1MiB", s)
		return 0
	}
	at.Record(s)
	return n
}

// ReadWord reads one of several words.
func ReadWord(at Place, words ...string) string {
	s, ok := at.Text()
	if ok && !slices.Contains(words, s) {
		at.Bad("%q is not one of %s", s, strings.Join(words, ", "))
		return ""
	}
	if ok {
		at.Record(s)
	}
	return s
}

// ReadBool reads true or false.
func ReadBool(at Place) bool {
	if at.Node.Kind != KindBool {
		at.Bad("%v, where true or false is expected", at.Node.Kind)
		return false
	}
	at.Record(at.Node.Text)
	return at.Node.Value == true
}
