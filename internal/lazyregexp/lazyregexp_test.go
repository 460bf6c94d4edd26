package lazyregexp

import (
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
)

func TestTheMethodsAreThoseOfRegexp(t *testing.T) {
	t.Parallel()
	const text = `(?P<key>[a-z]+)=([0-9]+)`
	const input = "one=1, two=22"
	lazy, want := newLazy(text), regexp.MustCompile(text)
	for name, got := range map[string][2]any{
		"String":                     {lazy.String(), want.String()},
		"Match":                      {lazy.Match([]byte(input)), want.Match([]byte(input))},
		"MatchString":                {lazy.MatchString("none"), want.MatchString("none")},
		"FindString":                 {lazy.FindString(input), want.FindString(input)},
		"FindStringSubmatch":         {lazy.FindStringSubmatch(input), want.FindStringSubmatch(input)},
		"FindStringSubmatchIndex":    {lazy.FindStringSubmatchIndex(input), want.FindStringSubmatchIndex(input)},
		"FindAllStringSubmatch":      {lazy.FindAllStringSubmatch(input, -1), want.FindAllStringSubmatch(input, -1)},
		"FindAllStringSubmatchIndex": {lazy.FindAllStringSubmatchIndex(input, 1), want.FindAllStringSubmatchIndex(input, 1)},
		"SubexpIndex":                {lazy.SubexpIndex("key"), want.SubexpIndex("key")},
		"ReplaceAll":                 {lazy.ReplaceAll([]byte(input), []byte("$2")), want.ReplaceAll([]byte(input), []byte("$2"))},
		"ReplaceAllString":           {lazy.ReplaceAllString(input, "$2"), want.ReplaceAllString(input, "$2")},
		"ReplaceAllStringFunc":       {lazy.ReplaceAllStringFunc(input, strings.ToUpper), want.ReplaceAllStringFunc(input, strings.ToUpper)},
	} {
		if !reflect.DeepEqual(got[0], got[1]) {
			t.Errorf("%s = %v, want %v", name, got[0], got[1])
		}
	}
}

func TestTheFirstUseCompiles(t *testing.T) {
	t.Parallel()
	lazy := newLazy(`(`)
	if lazy.String() != "(" {
		t.Errorf("String = %q", lazy)
	}
	for range 2 {
		wantPanic(t, "MatchString", func() { lazy.MatchString("x") })
	}
}

func TestNewCompilesInATest(t *testing.T) {
	t.Parallel()
	wantPanic(t, "New", func() { New(`(`) })
}

func TestConcurrentFirstUses(t *testing.T) {
	t.Parallel()
	lazy := newLazy(`^a+$`)
	var users sync.WaitGroup
	for range 16 {
		users.Go(func() {
			if !lazy.MatchString("aaa") {
				t.Error("no match")
			}
		})
	}
	users.Wait()
}

func wantPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s did not panic", what)
		}
	}()
	f()
}
