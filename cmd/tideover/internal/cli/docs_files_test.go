//go:build unix

package cli

import (
	"bytes"
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/certtest"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/retry"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// The policies in the first unlabelled code block of README.md and of policy.md can be parsed.
func TestThePoliciesOfThePagesAreRight(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"../README.md", "policy.md"} {
		for line := range strings.Lines(clitest.Blocks(t, name, "")[0]) {
			if _, err := retry.Parse(strings.TrimSpace(line)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// otherFiles has the YAML blocks of pages that are not a configuration of tideover. The key is the
// page, with the first key of the block if necessary. The value is the test that reads the block,
// or its purpose.
var otherFiles = map[string]string{
	"chaos.md":                   "a file for chaos; TestRecipeOutage serves it",
	"detect.md":                  "a pack; TestThePackOfTheDocumentationIsOne of internal/detect",
	"sim.md":                     "a scenario; TestTheFileOfThePageIsRight of internal/simulate",
	"metrics.md: scrape_configs": "is for Prometheus",
}

// Keys that replace the placeholders on the pages.
const (
	exampleKey = "npub1lrpv2fn99k0gcr9jfpyyma5hmfc6vgqvz986txgclrezwgvm8zpqzwgy8w"
	hisSecret  = "nsec1r3agvjg7z7qncn07qww4uay38dy2fs7r49mn9zg8hd3dr5hyln3swcn4xc"
)

// filledIn completes a part of a configuration, so that it can be loaded.
func filledIn(t *testing.T, text string) string {
	t.Helper()
	text = strings.NewReplacer("/mnt/backup/tideover", t.TempDir(), "npub1...", exampleKey).Replace(text)
	if strings.Contains(text, "workflow: nightly-report") && !strings.Contains(text, "workflows:") {
		text += "workflows: {nightly-report: {steps: [{id: fetch, run: [./fetch.sh]}]}}\n"
	}
	return text
}

// Every configuration on the pages can be loaded.
func TestTheFilesOfThePagesAreRight(t *testing.T) {
	t.Parallel()
	var schema struct {
		Properties map[string]any `json:"properties"`
	}
	if err := json.Unmarshal(config.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	key, n := regexp.MustCompile(`(?m)^([\w-]+):`), 0
	for _, name := range clitest.Pages(t) {
		for _, b := range clitest.FencedIn(clitest.ReadPage(t, name)) {
			m := key.FindStringSubmatch(b.Text)
			if b.Language != "yaml" || otherFiles[name] != "" || m != nil && otherFiles[name+": "+m[1]] != "" {
				continue
			}
			if m == nil || schema.Properties[m[1]] == nil {
				t.Errorf("%s has YAML that is not a configuration, and no test reads it: name its test in otherFiles:\n%s", name, b.Text)
				continue
			}
			n++
			text := filledIn(t, b.Text)
			k := clitest.EmptyRecipe(t)
			file := k.Configured(text)
			k.Env = append(k.Env, "NTFY_URL=https://ntfy.sh/x", "SLACK_WEBHOOK=https://hooks.example.com/x")
			k.Write(k.Path("ntfy-url"), "https://ntfy.sh/x", 0o600)
			if strings.Contains(text, "provider.nsec") {
				k.Write(k.Path("provider.nsec"), hisSecret+"\n", 0o600)
			}
			if strings.Contains(text, "cert.pem") {
				certtest.New(t).Issue(t, time.Now().Add(time.Hour), "tideover.example.com").Write(t, k.Dir)
			}
			if _, err := config.Load(config.Source{Path: file, Environ: k.Env}); err != nil {
				t.Errorf("%s: %s\n%v", name, text, err)
			}
		}
	}
	if n < 14 {
		t.Errorf("the pages have %d configurations", n)
	}
}

// Every block marked as JSON is valid: the whole block, or each of its lines.
func TestTheJSONOfThePagesIsJSON(t *testing.T) {
	t.Parallel()
	for _, name := range clitest.Pages(t) {
		for _, b := range clitest.FencedIn(clitest.ReadPage(t, name)) {
			if b.Language != "json" {
				continue
			}
			text := []byte(b.Text)
			for line := range bytes.Lines(text) {
				if !json.Valid(text) && !json.Valid(line) {
					t.Errorf("%s: this is no JSON: %s", name, line)
				}
			}
		}
	}
}
