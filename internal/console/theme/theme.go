// Package theme has the appearance that the pages of the server and the documentation share: the
// colors for light and dark mode, the fonts, the header and the controls.
package theme

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"path"
	"time"

	_ "embed"
)

// CSS is the style sheet. The style sheet of a page begins with it.
//
//go:embed theme.css
var CSS string

// Icon is the icon of all pages, as SVG.
//
//go:embed icon.svg
var Icon string

// Asset is a file that pages consist of or refer to.
type Asset struct {
	Name    string
	Body    []byte
	Type    string // media type
	Version string // part of the checksum of the body
}

// NewAsset returns an asset. Its type depends on the extension of the name.
func NewAsset(name string, body []byte) Asset {
	sum := sha256.Sum256(body)
	return Asset{name, body, cmp.Or(types[path.Ext(name)], "text/plain; charset=utf-8"), hex.EncodeToString(sum[:6])}
}

// types has the media types of files by extension. Package mime would also use a table of the
// operating system, which differs between machines.
var types = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
	".svg": "image/svg+xml", ".png": "image/png", ".gif": "image/gif", ".json": "application/json",
}

// Query returns the query of the asset's URL. Browsers cache the asset without a time limit if its URL
// has the query.
func (a Asset) Query() string { return "?v=" + a.Version }

// ServeHTTP sends the asset, unless the browser has it already.
func (a Asset) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cache := "no-cache"
	if r.URL.Query().Get("v") == a.Version {
		cache = "public, max-age=31536000, immutable"
	}
	head := w.Header()
	head.Set("Cache-Control", cache)
	head.Set("ETag", `"`+a.Version+`"`)
	head.Set("Content-Type", a.Type)
	http.ServeContent(w, r, a.Name, time.Time{}, bytes.NewReader(a.Body))
}
