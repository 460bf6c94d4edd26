package pages

import (
	"net/http"
	"net/url"
	"slices"
)

// display has the settings of a browser, which are stored in cookies.
type display struct {
	Theme   string // light or dark; "" for that of the system
	Clock   string // 24h; "" for that of the browser's language
	Choices []displayChoice
}

type displayChoice struct {
	Label string
	Links []displayLink
}

// displayLink is a link that chooses a value.
type displayLink struct {
	Text, URL string
	On        bool
}

// displaySettings are the settings and their values. The first value is the default, for which there
// is no cookie.
var displaySettings = []struct {
	name, label string
	values      []string
}{{"theme", "Theme", []string{"auto", "light", "dark"}}, {"clock", "Times", []string{"local", "24h"}}}

// newDisplay returns the settings of the browser that has sent a request.
func newDisplay(r *http.Request) (d display) {
	for _, s := range displaySettings {
		value := s.values[0]
		if c, err := r.Cookie("tideover-" + s.name); err == nil && slices.Contains(s.values, c.Value) {
			value = c.Value
		}
		if value != s.values[0] {
			if s.name == "theme" {
				d.Theme = value
			} else {
				d.Clock = value
			}
		}
		choice := displayChoice{Label: s.label}
		for _, v := range s.values {
			u := url.Values{s.name: {v}}
			if r.Method == http.MethodGet {
				u.Set("back", r.URL.RequestURI())
			}
			choice.Links = append(choice.Links, displayLink{v, "/display?" + u.Encode(), v == value})
		}
		d.Choices = append(d.Choices, choice)
	}
	return d
}
