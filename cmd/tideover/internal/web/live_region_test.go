package web

import (
	"regexp"
	"testing"
)

// Screen readers announce every change of a live region, so live regions must not contain times that
// change every second.
func TestAnnouncementsDoNotTick(t *testing.T) {
	t.Parallel()
	files, err := templates.ReadDir("templates")
	if err != nil {
		t.Fatal(err)
	}
	region := regexp.MustCompile(`(?s)role="(?:alert|status)".*?</(?:p|div)>`)
	ticks := regexp.MustCompile(`\{\{(?:ago|in|since) `)
	for _, f := range files {
		body, err := templates.ReadFile("templates/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range region.FindAllString(string(body), -1) {
			if ticks.MatchString(m) {
				t.Errorf("%s announces every second: %s", f.Name(), m)
			}
		}
	}
}
