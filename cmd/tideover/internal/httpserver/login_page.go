package httpserver

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"net/http"
	"net/url"
	"strings"

	"github.com/tideover/tideover/internal/console/theme"
)

// loginStyle is the style sheet of the login page, which is part of the page: a browser without a
// token can load nothing else from this server.
var loginStyle = theme.CSS + "form { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; margin: 1rem 0; }\n"

//go:embed login_page.html
var loginHTML string

var loginTemplate = template.Must(template.New("login").Parse(loginHTML))

// loginPolicy is the Content-Security-Policy of the login page.
var loginPolicy = func() string {
	sum := sha256.Sum256([]byte(loginStyle))
	return "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'; img-src data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
}()

// loginPage is the content of the page that asks for the token.
type loginPage struct {
	Style   template.CSS
	Command string     // the command that prints the link with the token
	Place   string     // where the token is stored
	Wrong   bool       // the link has a token that is not valid
	Query   url.Values // the rest of the query, which the form sends, too
}

// wantsLoginPage reports whether a browser asks for a page, and not a script of a page for a part of it.
func wantsLoginPage(r *http.Request) bool {
	return r.Method == http.MethodGet && strings.Contains(r.Header.Get("Accept"), "text/html") && r.Header.Get("HX-Request") == ""
}

// sendLoginPage answers with status 401 and a form for the token.
func (g *guard) sendLoginPage(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p := loginPage{Style: template.CSS(loginStyle), Command: g.command, Place: tokenPlace, Wrong: q.Has("token"), Query: q} //nolint:gosec // the style is a constant
	q.Del("token")
	var b bytes.Buffer
	if err := loginTemplate.Execute(&b, p); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Security-Policy", loginPolicy)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = w.Write(b.Bytes())
}
