package secret

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// maxFile is the largest size of a file with a secret.
const maxFile = 64 << 10

// Ref says where a secret is stored.
type Ref struct {
	Kind string // "env" or "file"
	Name string // the variable's name or the file's path
}

// String returns the reference in its text form: ${env:NAME}, ${file:path}. It
// does not contain the secret.
func (r Ref) String() string { return "${" + r.Kind + ":" + r.Name + "}" }

var envName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// ParseRef parses a reference, which must be the whole text.
func ParseRef(text string) (Ref, error) {
	body, ok := strings.CutPrefix(text, "${")
	body, closed := strings.CutSuffix(body, "}")
	kind, name, colon := strings.Cut(body, ":")
	switch {
	case !ok || !closed || !colon || kind != "env" && kind != "file":
		return Ref{}, fmt.Errorf("%q is not a reference such as ${env:NAME} or ${file:path}", text)
	case kind == "env" && !envName.MatchString(name):
		return Ref{}, fmt.Errorf("%q: %q is not the name of a variable", text, name)
	case name == "" || strings.ContainsAny(name, "{}\x00\r\n"):
		return Ref{}, fmt.Errorf("%q: %q is not a path", text, name)
	}
	return Ref{Kind: kind, Name: name}, nil
}

// Resolver looks up references. The zero Resolver reads the variables of the
// process, and files relative to the working folder. It is safe for concurrent
// use.
type Resolver struct {
	LookupEnv func(name string) (value string, ok bool) // nil means os.LookupEnv
	Redactor  *Redactor                                 // every value that is looked up is added to it; may be nil
}

// Resolve returns the secret. A file's path is relative to dir, and one newline
// at its end is not part of the secret. A variable that is not set, a file that
// is not there and a secret that is empty are errors, which name the reference.
func (r Resolver) Resolve(ref Ref, dir string) (String, error) {
	value, err := r.lookup(ref, dir)
	if err != nil {
		return String{}, &unavailableError{ref, err}
	}
	if r.Redactor != nil {
		r.Redactor.Add(value)
	}
	return New(value), nil
}

// ErrUnavailable matches, with errors.Is, the error of a secret that could not
// be read.
var ErrUnavailable = errors.New("secret is not available")

type unavailableError struct {
	ref Ref
	err error
}

func (e *unavailableError) Error() string        { return fmt.Sprintf("%v: %v", e.ref, e.err) }
func (e *unavailableError) Unwrap() error        { return e.err }
func (e *unavailableError) Is(target error) bool { return target == ErrUnavailable }

func (r Resolver) lookup(ref Ref, dir string) (string, error) {
	if ref.Kind == "file" {
		return readFile(ref.Name, dir)
	}
	lookup := r.LookupEnv
	if lookup == nil {
		lookup = os.LookupEnv
	}
	value, ok := lookup(ref.Name)
	switch {
	case !ok:
		return "", fmt.Errorf("the variable %s is not set", ref.Name)
	case value == "":
		return "", fmt.Errorf("the variable %s is empty", ref.Name)
	}
	return value, nil
}

func readFile(name, dir string) (string, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	// Stat first: opening a pipe would wait for a writer.
	switch info, err := os.Stat(name); {
	case err != nil:
		return "", reason(err)
	case !info.Mode().IsRegular():
		return "", errors.New("not a regular file")
	}
	f, err := os.Open(name)
	if err != nil {
		return "", reason(err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return "", reason(err)
	case len(data) > maxFile:
		return "", fmt.Errorf("larger than %d bytes", maxFile)
	}
	value := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	if value == "" {
		return "", errors.New("the file is empty")
	}
	return value, nil
}

// reason removes the operation and the path, which the reference already
// contains.
func reason(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}
