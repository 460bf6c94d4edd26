package config

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/lazyregexp"
)

var methods = []string{"get", "post", "put", "patch", "delete", "head"}

// http reads a request.
func (r *workflowReader) http(at place, d *stepDraft) {
	found, ok := strictyaml.Object(at, r.httpKeys(d))
	if !ok {
		return
	}
	var given []string
	for _, m := range methods {
		if _, ok := found[m]; ok {
			given = append(given, m)
		}
	}
	switch body, hasBody := found["body"]; {
	case len(given) == 0:
		at.Bad("the method is missing; want one of %s with the URL", strings.Join(methods, ", "))
	case len(given) > 1:
		found[given[1]].Bad("can't be combined with %s; a request has one method", given[0])
	case hasBody && (given[0] == "get" || given[0] == "head"):
		body.Bad("a %s request has no body", given[0])
	}
}

// httpKeys are the keys of a request.
func (r *workflowReader) httpKeys(d *stepDraft) []key {
	// The provider comes before the methods, whose URLs it makes paths.
	keys := []key{strictyaml.Func("provider", "", strictyaml.NameSchema, func(at place) {
		s, ok := at.Text()
		d.Provider = cmp.Or(s, "?") // also if it is wrong: the URL is meant to be a path
		if ok && r.providers.providers[s] == nil {
			at.Bad("%s", r.providers.noProvider(s))
		}
		at.Record(s)
	}, "Provider to send the request to, with the provider's keys, limits and breaker. The URL is then a path below its base-url.")}
	for _, m := range methods {
		method := strings.ToUpper(m)
		keys = append(keys, strictyaml.Func(m, "", strictyaml.TextSchema, func(at place) {
			d.Method, d.Texts.URL = method, r.url(at, d)
		}, "URL of a "+method+" request, or with provider a path such as /v1/models; a template that may contain references."))
	}
	return append(keys,
		strictyaml.Func("headers", "", headersSchema, func(at place) {
			d.Texts.Headers = r.Map(at, d.fields, headerNames(), d.addText)
		}, "Headers of the request. Values are templates and may contain references."),
		strictyaml.Func("body", "", strictyaml.ScalarSchema, func(at place) {
			d.Texts.Body = r.used(at, "body", template.WithoutRefs, d)
			at.Record(at.Node.Text)
		}, "Body of the request, a template."),
		strictyaml.Field(&d.Expect, "expect", "", statusSchema, readStatuses,
			"Status codes that count as success, such as 200 or 200-204. Default: 200-299."),
	)
}

func statusSchema() *jsonschema.Schema { return codesSchema(100, 599, `0*[1-5][0-9][0-9]`) }

func readStatuses(at place) exitcode.Set { return readCodes(at, "a status", 100, 599) }

// url reads the URL of a request. One without templates and references is
// checked here, others when they are written out.
func (r *workflowReader) url(at place, d *stepDraft) *template.Text {
	if s := at.Node.Text; at.Node.Kind == strictyaml.KindText {
		if literal, found := template.URLSecret(s); found {
			template.RefuseLiteral(at, literal, template.WithRefs)
			return nil
		}
	}
	t := r.used(at, "url", template.WithRefs, d)
	if t == nil {
		return nil
	}
	msg := ""
	switch {
	case d.Provider != "" && !t.IsConstant():
		msg = steps.PathStartProblem(t.Source())
	case t.IsConstant():
		msg = d.TargetProblem(t.Literal())
	}
	if msg != "" {
		at.Bad("%q %s", t.Source(), msg)
		return nil
	}
	at.Record(t.Source())
	return t
}

var headerName = lazyregexp.New("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// clientHeaders are those that the client sets itself.
var clientHeaders = []string{"Content-Length", "Transfer-Encoding", "Connection"}

// anyCase returns a pattern of the names in any case, which a schema can only leave
// open by spelling it out.
func anyCase(names []string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.Join(names, "|")) {
		if unicode.IsLetter(r) {
			fmt.Fprintf(&b, "[%c%c]", unicode.ToUpper(r), r)
		} else {
			b.WriteRune(r)
		}
	}
	return "^(" + b.String() + ")$"
}

// headerNames returns a function that returns what is wrong with the name of the next
// header, or "".
func headerNames() func(name string) string {
	seen := map[string]bool{}
	return func(name string) string {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !headerName.MatchString(name):
			return "is not the name of a header"
		case slices.Contains(clientHeaders, canonical):
			return "is set by the client itself"
		case seen[canonical]:
			return "is already set in another spelling"
		}
		seen[canonical] = true
		return ""
	}
}
