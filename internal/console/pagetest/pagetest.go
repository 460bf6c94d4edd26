// Package pagetest has what tests of pages share.
package pagetest

import (
	"encoding/xml"
	"errors"
	"io"
	"io/fs"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// Has fails the test if a page lacks one of the texts.
func Has(t testing.TB, name, body string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(body, w) {
			t.Errorf("%s: has no %q\n%s", name, w, body)
		}
	}
}

// HasNot fails the test if a page has one of the texts.
func HasNot(t testing.TB, name, body string, bad ...string) {
	t.Helper()
	for _, w := range bad {
		if strings.Contains(body, w) {
			t.Errorf("%s: has %q\n%s", name, w, body)
		}
	}
}

// Audit fails the test if a page has inline scripts, event handlers or styles, links to other servers,
// unknown elements, or invisible characters.
func Audit(t testing.TB, name, body string) {
	t.Helper()
	for i, r := range body {
		if !unicode.IsPrint(r) && !unicode.Is(unicode.Zs, r) && r != '\n' && r != '\t' && !strings.HasPrefix(body[i:], "\uFFFD") {
			t.Errorf("%s: has %U: …%q…", name, r, body[max(i-40, 0):min(i+20, len(body))])
			return
		}
	}
	d := xml.NewDecoder(strings.NewReader(body))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if e, ok := token.(xml.StartElement); ok {
			auditElement(t, name, e)
		}
	}
}

// NothingInline fails the test if a template contains what the Content-Security-Policy forbids.
func NothingInline(t testing.TB, templates fs.FS) {
	t.Helper()
	files, err := fs.Glob(templates, "templates/*.html")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d templates, %v", len(files), err)
	}
	for _, name := range files {
		body, err := fs.ReadFile(templates, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"style=", "<style", "onclick", "hx-on", "js:", "javascript:", "http://", "https://", "hx-vals"} {
			if strings.Contains(string(body), bad) {
				t.Errorf("%s has %q", name, bad)
			}
		}
	}
}

// forbidden matches attributes with a script or a style.
var forbidden = regexp.MustCompile(`^(on|hx-on|style$|srcdoc$)`)

// linking are the attributes with a URL.
var linking = []string{"href", "src", "action", "connect", "hx-get", "hx-post"}

// staysHere matches the URLs of pages and parts of pages of the same server.
var staysHere = regexp.MustCompile(`^(/([^/<>" ][^<>" ]*)?|#[^<>" ]*)?$`)

func auditElement(t testing.TB, name string, e xml.StartElement) {
	t.Helper()
	if !slices.Contains(known, e.Name.Local) {
		t.Errorf("%s: has an element %q", name, e.Name.Local)
	}
	script := e.Name.Local == "script"
	if script && len(e.Attr) == 0 {
		t.Errorf("%s: has a script of its own", name)
	}
	for _, a := range e.Attr {
		n := strings.ToLower(a.Name.Local)
		if forbidden.MatchString(n) {
			t.Errorf("%s: <%s> has an attribute %q", name, e.Name.Local, n)
		}
		if !slices.Contains(linking, n) {
			continue
		}
		if _, err := url.Parse(a.Value); err != nil || !staysHere.MatchString(a.Value) || script && !strings.HasPrefix(a.Value, "/static/") {
			t.Errorf("%s: <%s> leads to %q", name, e.Name.Local, a.Value)
		}
	}
}

// known are the elements that the templates use.
var known = strings.Fields(`a body br button caption circle code dd defs desc details dialog div dl dt footer form g h1 h2 h3 head header
	html hx-partial input kbd label li line link main marker meta nav noscript option p path pattern pre progress rect script section select span strong
	summary svg table tbody td text textarea th thead time title tr ul`)
