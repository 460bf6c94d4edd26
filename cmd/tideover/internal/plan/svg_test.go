package plan

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/retry"
)

// wantXML parses a chart and checks that all elements are inside its frame.
func wantXML(t *testing.T, what string, data []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if e, ok := token.(xml.StartElement); ok {
			for _, a := range e.Attr {
				inFrame(t, what, e.Name.Local, a)
			}
		}
	}
	for _, bad := range []string{"NaN", "Inf", "%!"} {
		if bytes.Contains(data, []byte(bad)) {
			t.Errorf("%s: has %q", what, bad)
		}
	}
	if n := bytes.Count(data, []byte("://")); n != 1 {
		t.Errorf("%s: names %d addresses, want that of the namespace alone", what, n)
	}
}

func inFrame(t *testing.T, what, element string, a xml.Attr) {
	t.Helper()
	switch a.Name.Local {
	case "x", "y", "cx", "cy", "width", "height":
		if f, err := strconv.ParseFloat(a.Value, 64); err != nil || f < 0 || f > 5000 {
			t.Errorf("%s: %s has %s=%q", what, element, a.Name.Local, a.Value)
		}
	}
}

func TestSVG(t *testing.T) {
	t.Parallel()
	seed := uint64(1)
	for _, o := range []Options{{}, {Seed: &seed}, {List: 40}} {
		for _, log := range []bool{false, true} {
			for i := 0; i < len(samples); i += 3 {
				var b bytes.Buffer
				if err := SVG(&b, parse(t, o, samples[i:min(i+3, len(samples))]...), log); err != nil {
					t.Fatal(err)
				}
				wantXML(t, samples[i], b.Bytes())
			}
		}
	}
}

func TestSVGGolden(t *testing.T) {
	t.Parallel()
	seed := uint64(1)
	var b bytes.Buffer
	if err := SVG(&b, parse(t, Options{Seed: &seed}, "http", "daemon total-timeout=5m"), false); err != nil {
		t.Fatal(err)
	}
	testfile.Golden(t, "testdata/two.svg", b.Bytes())
}

func TestSVGEscapesText(t *testing.T) {
	t.Parallel()
	p, _ := retry.Preset("http")
	var b bytes.Buffer
	if err := SVG(&b, []Plan{New(`<script>"a" & 'b'</script>`, p, Options{})}, false); err != nil {
		t.Fatal(err)
	}
	wantXML(t, "a name with markup", b.Bytes())
	if bytes.Contains(b.Bytes(), []byte("<script")) {
		t.Errorf("the name is not escaped:\n%s", b.Bytes())
	}
}
