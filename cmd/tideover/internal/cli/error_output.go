package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tideover/tideover/internal/console/control"
)

// Codes of errors in JSON that no server has reported. Errors of a server have its code.
const (
	jsonUsage    = "usage"     // the command line, a file or the configuration is wrong
	jsonNoServer = "no-server" // there is no connection to the server
	jsonFailed   = "failed"    // any other error
)

// jsonError is an error on standard error with --json, as {"error": {...}}. Standard output has
// only results.
type jsonError struct {
	Message    string   `json:"message"`
	Code       string   `json:"code"`
	ExitCode   int      `json:"exit_code"`
	Run        string   `json:"run,omitempty"`        // of several runs, the one that could not be changed
	Field      string   `json:"field,omitempty"`      // field of the request that is wrong
	Hint       string   `json:"hint,omitempty"`       // what to do
	Candidates []string `json:"candidates,omitempty"` // ids of the runs that match an ambiguous name
	See        string   `json:"see,omitempty"`        // the command that prints the help
}

// newJSONError returns the JSON form of an error and of the exit code that it leads to.
func newJSONError(err error, exitCode int) jsonError {
	e := jsonError{Message: err.Error(), Code: jsonFailed, ExitCode: exitCode}
	if p, ok := errors.AsType[*control.Error](err); ok {
		e.Message, e.Code, e.Field, e.Hint, e.Candidates = p.Message, string(p.Code), p.Field, p.Hint, p.Candidates
	} else if unreachable(err) {
		e.Code = jsonNoServer
	}
	return e
}

// write prints the error as a line of JSON.
func (e jsonError) write(w io.Writer) {
	_ = writeJSON(w, map[string]jsonError{"error": e}) // the exit code says that there was an error
}

// printError prints an error and returns the exit code.
func printError(w io.Writer, cmd *cobra.Command, args []string, err error) int {
	asJSON := wantsJSON(cmd, args, err)
	if c, ok := errors.AsType[*codedError](err); ok {
		code := exitCode(cmd, c.code)
		if asJSON {
			newJSONError(c.err, code).write(w)
		} else {
			fmt.Fprintf(w, "tideover: %s\n", visibleLines(c.Error()))
		}
		return code
	}
	see := cmd.CommandPath() + " --help"
	if text := err.Error(); strings.Contains(text, "--policy: ") || strings.Contains(text, `policy "`) {
		see = "tideover help policy"
	}
	if asJSON {
		e := newJSONError(err, CodeOwn)
		e.Code, e.See = jsonUsage, see
		e.write(w)
	} else {
		fmt.Fprintf(w, "tideover: %s\nSee '%s'.\n", visibleLines(err.Error()), see)
	}
	return CodeOwn
}

// flagError is the error of a command line whose flags can't be parsed.
type flagError struct{ error }

func (e flagError) Unwrap() error { return e.error }

// wantsJSON reports whether a command line asks for JSON. If a flag could not be parsed, --json may
// come after that flag, so wantsJSON looks for it in the arguments.
func wantsJSON(cmd *cobra.Command, args []string, err error) bool {
	f := cmd.Flags().Lookup("json")
	if f == nil {
		return false
	}
	if _, unparsed := errors.AsType[flagError](err); f.Changed || !unparsed {
		return f.Value.String() == "true"
	}
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "-j")
}
