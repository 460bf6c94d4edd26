package pages

import (
	"embed"
	"net/http"
	"strings"
	"sync"

	"github.com/tideover/tideover/internal/console/theme"
)

//go:embed static
var static embed.FS

// assets are the scripts, styles and images of the pages, by name. Their URLs contain a part of their
// checksum, so that browsers can cache them without a time limit.
type assets map[string]theme.Asset

// scripts are the files that page.js consists of, in this order. They must be one file: htmx processes
// the page at the end of its own script, before a later script could add an extension or a listener.
var scripts = []string{"htmx-4.0.0.min.js", "hx-sse-4.0.0.min.js", "app.js"}

// loadAssets returns the files, which it reads at the first call.
var loadAssets = sync.OnceValue(func() assets {
	files, err := static.ReadDir("static")
	if err != nil {
		panic(err) // impossible: the folder is embedded
	}
	a := assets{}
	for _, f := range files {
		body, err := static.ReadFile("static/" + f.Name())
		if err != nil {
			panic(err)
		}
		a.add(f.Name(), body)
	}
	var js []byte
	for _, name := range scripts {
		js = append(append(js, a[name].Body...), ";\n"...)
	}
	a.add("page.js", js)
	a.add("page.css", append([]byte(theme.CSS), a["page.css"].Body...))
	a.add("icon.svg", []byte(theme.Icon))
	return a
})

func (a assets) add(name string, body []byte) { a[name] = theme.NewAsset(name, body) }

// url returns the URL of a file.
func (a assets) url(name string) string { return "/static/" + name + a[name].Query() }

func (a assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f, ok := a[strings.TrimPrefix(r.URL.Path, "/static/")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	f.ServeHTTP(w, r)
}
