package template

import "github.com/tideover/tideover/internal/secret"

// Fields are the fields that the templates of a place may use.
type Fields struct {
	First []string // such as input, steps, run
	Input []string // those of .input; nil means any

	// Quotes are, of a message, the fields that may quote the input of a run; nil if it is
	// no message.
	Quotes []string
}

// The fields that templates may use, by the first one.
var (
	stepFields = []string{"stdout", "stderr", "output", "exit", "status", "truncated"}
	rootFields = map[string][]string{
		"input": nil, "steps": nil, // any
		"run":      {"id", "workflow", "key", "origin", "origin_key", "attempt", "step", "reason", "error"},
		"schedule": {"time"},
		"today":    {},
	}
)

// Scope is the data of one rendering, in the form that templates walk.
type Scope struct {
	Root    map[string]any
	Steps   map[string]any // results of steps, for the function step
	Secrets secret.Resolver
	Dir     string // where relative paths of references start
}
