package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

const (
	namePattern = `^[a-z0-9][a-z0-9_.-]{0,62}$`
	nameRule    = "want 1 to 63 lower-case letters, digits, hyphens, underscores and dots, the first a letter or digit"
)

var validName = lazyregexp.New(namePattern)

// scalar returns a text, or a number or a truth value as it is written.
func (l *loader) scalar(at place) (string, bool) {
	switch {
	case at.node.scalar():
		return at.node.text, true
	case at.node.kind == nullKind:
		l.bad(at, `there is no value; write "" for an empty text`)
	default:
		l.bad(at, "%v, where a text is expected", at.node.kind)
	}
	return "", false
}

// list calls each for the items of a list.
func (l *loader) list(at place, each func(at place)) bool {
	if at.node.kind != listKind {
		l.bad(at, "%v, where a list is expected", at.node.kind)
		return false
	}
	for i := range at.node.items {
		each(at.index(i))
	}
	return true
}

// duration reads a duration above zero, as policies write it.
func (l *loader) duration(at place) (d time.Duration) {
	s, ok := l.scalar(at)
	if !ok {
		return 0
	}
	d, err := retry.ParseDuration(s)
	if _, num := strconv.ParseFloat(s, 64); err != nil && num == nil {
		err = fmt.Errorf("%q has no unit; write %ss for seconds", s, s)
	}
	if err == nil && d == 0 {
		err = fmt.Errorf("%q: must be above zero", s)
	}
	if err != nil {
		l.bad(at, "%v", err)
		return 0
	}
	l.value(at, s)
	return d
}

// number reads a whole number.
func (l *loader) number(at place, least int) int {
	s, ok := l.scalar(at)
	if !ok {
		return 0
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || int(n) < least {
		l.bad(at, "%q is not a whole number of %d or more", s, least)
		return 0
	}
	l.value(at, s)
	return int(n)
}

// sizePattern is what [textfmt.ParseSize] reads, without 0 and terabytes.
const sizePattern = `^0*[1-9][0-9]*(KiB|MiB|GiB|kB|KB|MB|GB|B)?$`

var sizeForm = lazyregexp.New(sizePattern)

// bytes reads a number of bytes above zero: 500, 64KiB, 10MB.
func (l *loader) bytes(at place) int64 {
	s, ok := l.scalar(at)
	if !ok {
		return 0
	}
	n, ok := textfmt.ParseSize(s)
	if !ok || !sizeForm.MatchString(s) {
		l.bad(at, "%q is not a size such as 500kB, 64KiB or 1MiB", s)
		return 0
	}
	l.value(at, s)
	return n
}

// word reads one of several words.
func (l *loader) word(at place, words ...string) string {
	s, ok := l.scalar(at)
	if ok && !slices.Contains(words, s) {
		l.bad(at, "%q is not one of %s", s, strings.Join(words, ", "))
		return ""
	}
	if ok {
		l.value(at, s)
	}
	return s
}
