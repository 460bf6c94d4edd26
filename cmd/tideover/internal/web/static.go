package web

import (
	"bytes"
	"cmp"
	"embed"
	"net/http"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/theme"
)

//go:embed static
var static embed.FS

// assets are the scripts, styles and images of the pages, by name. Their URLs contain a part of their
// checksum, so that browsers can cache them without a time limit.
type assets map[string]asset

type asset struct {
	body    []byte
	kind    string
	version string
}

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
		js = append(append(js, a[name].body...), ";\n"...)
	}
	a.add("page.js", js)
	a.add("page.css", append([]byte(theme.CSS), a["page.css"].body...))
	a.add("icon.svg", []byte(theme.Icon))
	return a
})

func (a assets) add(name string, body []byte) {
	a[name] = asset{body, cmp.Or(kinds[path.Ext(name)], "text/plain; charset=utf-8"), hash(string(body), 6)}
}

// kinds has the media types of files by extension. Package mime would also use a table of the
// operating system, which differs between machines.
var kinds = map[string]string{
	".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml",
}

// url returns the URL of a file.
func (a assets) url(name string) string { return "/static/" + name + "?v=" + a[name].version }

func (a assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/static/")
	f, ok := a[name]
	if !ok {
		http.NotFound(w, r)
		return
	}
	cache := "no-cache"
	if r.URL.Query().Get("v") == f.version {
		cache = "public, max-age=31536000, immutable"
	}
	head := w.Header()
	head.Set("Cache-Control", cache)
	head.Set("ETag", `"`+f.version+`"`)
	head.Set("Content-Type", f.kind)
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(f.body))
}
