package simulate

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
)

// wellFormed parses XML to its end.
func wellFormed(t *testing.T, name string, data []byte) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func TestSVG(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]*View{"drawn": drawn(3), "hostile": simulated(t, hostile, 2), "empty": madeUp([]float64{0, 0, 0, 0, 0})} {
		var b bytes.Buffer
		if err := SVG(&b, v); err != nil {
			t.Fatal(err)
		}
		wellFormed(t, name, b.Bytes())
		for _, bad := range []string{"NaN", "Inf", "<script", "<img", "<foreignObject", "href", "%!"} {
			if strings.Contains(b.String(), bad) {
				t.Errorf("%s has %s", name, bad)
			}
		}
		if name == "drawn" {
			testfile.Golden(t, "testdata/drawn.svg", b.Bytes())
		}
	}
}

var (
	tag        = regexp.MustCompile(`<[a-zA-Z/!][^>]*>`)
	styleText  = regexp.MustCompile(`(?s)<style>(.*)</style>`)
	policyText = regexp.MustCompile(`style-src &#39;sha256-([A-Za-z0-9+/=]+)&#39;`)
	value      = regexp.MustCompile(`"[^"]*"`)
	attribute  = regexp.MustCompile(`\s(on[a-z]+|style|src|href|action)=`)
)

// The page is checked as text; TestPageInBrowser checks it in a browser.
func TestHTML(t *testing.T) {
	t.Parallel()
	named := drawn(3)
	for i := range named.Report.Results {
		named.Report.Results[i].Name = `<img src="/x">` + named.Report.Results[i].Name
	}
	for name, v := range map[string]*View{"drawn": drawn(3), "named": named, "hostile": simulated(t, hostile, 2), "empty": madeUp([]float64{0, 0, 0, 0, 0})} {
		var b bytes.Buffer
		if err := HTML(&b, v); err != nil {
			t.Fatal(err)
		}
		page := strings.ReplaceAll(b.String(), "&#43;", "+")
		style := styleText.FindStringSubmatch(page)
		sum := sha256.Sum256([]byte(style[1]))
		if m := policyText.FindStringSubmatch(page); m == nil || m[1] != base64.StdEncoding.EncodeToString(sum[:]) {
			t.Errorf("%s: the policy does not allow the style: %v", name, m)
		}
		if !strings.Contains(page, "content=\"default-src &#39;none&#39;; style-src &#39;sha256-") || strings.Contains(page, "unsafe") {
			t.Errorf("%s: the policy is weaker", name)
		}
		body := strings.Replace(page, style[0], "", 1)
		for _, x := range tag.FindAllString(body, -1) {
			if m := attribute.FindString(value.ReplaceAllString(x, `""`)); m != "" && x != `<link rel="icon" href="data:,">` {
				t.Errorf("%s: %q has %s", name, x, m)
			}
			for _, bad := range []string{"<script", "<img", "<iframe", "<object", "<base", "<form"} {
				if strings.HasPrefix(strings.ToLower(x), bad) {
					t.Errorf("%s: %s", name, x)
				}
			}
		}
		for _, bad := range []string{"NaN", "%!", "ZgotmplZ", "@import", "url("} {
			if strings.Contains(page, bad) {
				t.Errorf("%s: the page has %q", name, bad)
			}
		}
	}
}

// The page contains all parts of the report.
func TestHTMLHasEverything(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	if err := HTML(&b, drawn(2)); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`id="t-load"`, `id="t-goodput"`, `id="t-queue"`, `id="t-latency"`, `id="t-recovery"`, `id="t-heat-0"`, `id="t-heat-1"`,
		"<title>Simulation of made-up</title>", "From 5s to 10s, shop rejects every call.", "  - kind: outage\n    from: 5s\n",
		"tideover sim made-up.yaml --seed 0 --seeds 5", `class="best">`, `data-policy="naive"`, "peak in 1s", "never", "naive never recovers, in 5 of 5 seeds",
		`<meta name="viewport"`, `lang="en"`, `scope="row"`,
	} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("the page does not have %q", part)
		}
	}
}
