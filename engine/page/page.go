// Package page shows the runs of an embedded engine in a browser: runs with their attempts and waits,
// dead letters, questions to people, workflows and schedules. They are the same pages as those of
// `tideover serve`.
//
//	http.Handle("/tasks/", page.New(eng, page.Options{Path: "/tasks", User: user}))
//
// The page has no login. Users may only look, unless [Options.User] says that they may change runs.
//
// Names of workflows that begin with "session.", "notify." or "nip90.", or end with ".on-give-up", belong
// to the server: users can't start, pause or repeat runs of such workflows on the pages, and lists leave
// most of them out unless they are asked for them.
//
// An open page keeps its request until the engine is closed or the browser leaves. [http.Server.Shutdown]
// waits for it: close the engine first.
package page

import (
	"context"
	"net/http"
	"strings"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/console/pages"
)

// Options configures the pages.
type Options struct {
	// Path is the path of the pages, such as "/tasks". It is empty if they have an address of their own.
	Path string

	// Program is the name of the program, at the end of each page. It may be empty.
	Program string

	// User returns the user who sends a request. If it is nil, everyone may only look.
	User func(*http.Request) User

	// Redact removes secrets from the text that is shown, such as inputs and errors. If it is nil, it
	// removes none.
	Redact func(string) string
}

// User is a person who looks at the pages.
type User struct {
	Name      string // in the history of the runs that the user changes; "page" is there if it is empty
	MayChange bool   // may start, retry and cancel runs, answer questions, pause workflows
}

// New returns the pages of an engine. They read the events of the engine until it is closed.
//
// The handler rejects changes that a page of another site sends.
func New(e *engine.Engine, o Options) http.Handler {
	site := pages.New(pages.Options{
		Control: control.New(e), Base: base(o.Path), Program: o.Program, Redact: o.Redact, Clustered: clustered(e),
		CallerOf: func(r *http.Request) pages.Caller {
			if o.User == nil {
				return pages.Caller{ReadOnly: true}
			}
			u := o.User(r)
			return pages.Caller{Name: u.Name, IsUser: u.Name != "", ReadOnly: !u.MayChange}
		},
	})
	return http.NewCrossOriginProtection().Handler(site)
}

// base returns the path without a slash at the end, and with one at the beginning unless it is empty.
func base(path string) string { return strings.TrimRight("/"+strings.Trim(path, "/"), "/") }

// clustered reports whether the engine shares its work with other processes. It does not ask them.
func clustered(e *engine.Engine) bool {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	_, ok, _ := e.Cluster(over) //nolint:errcheck // the error says that the context is over
	return ok
}
