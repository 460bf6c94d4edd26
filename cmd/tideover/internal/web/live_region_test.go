package web

import (
	"regexp"
	"testing"
)

// Regions that screen readers announce must not contain times that change every second.
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
