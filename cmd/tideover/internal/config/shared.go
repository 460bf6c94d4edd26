package config

import (
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/textfmt"
)

// place is a value of the file, and key one key of a map of it.
type (
	place = strictyaml.Place
	key   = strictyaml.Key
)

// sharedReader is what the readers of all sections share.
type sharedReader struct {
	template.Reader
	env      environment
	flags    map[string]string
	commands []command // of steps, jobs and notifiers, for warnings
}

// path returns the absolute path of a path in the file.
func (r *sharedReader) path(at place, s string) string {
	if s == "~" || strings.HasPrefix(s, "~/") {
		home := r.env.home()
		if home == "" {
			at.Bad("%q: the home folder is unknown; write an absolute path", s)
		}
		s = filepath.Join(home, strings.TrimPrefix(s, "~"))
	} else if strings.HasPrefix(s, "~") {
		at.Bad("%q: only ~/ is expanded, to your own home folder", s)
	}
	if strings.ContainsRune(s, 0) || s == "" {
		at.Bad("%q is not a path", s)
	}
	if filepath.IsAbs(s) {
		return filepath.Clean(s)
	}
	if at.Node.Origin != "" { // a variable or a flag is relative to the working folder
		if abs, err := filepath.Abs(s); err == nil {
			return abs
		}
	}
	return filepath.Join(r.Dir, s)
}

// filePath reads the path of a file or a folder.
func (r *sharedReader) filePath(at place) string {
	s, ok := at.Text()
	if !ok {
		return ""
	}
	path := r.path(at, s)
	at.Record(path)
	return path
}

// readCommandLine reads a command and its arguments, each by read.
func readCommandLine(at place, read func(place) *template.Text) (argv []*template.Text) {
	if at.Node.Kind == strictyaml.KindText {
		at.Bad(`a text, where a list is expected: [%s]; no shell is used; to use one, write [sh, -c, "…"]`,
			textfmt.Clip(strings.Join(strings.Fields(strictyaml.MaskKnown(at.Node.Text)), ", "), strictyaml.MaxQuoted))
		return nil
	}
	ok := at.Each(func(at place) {
		if t := read(at); t != nil {
			argv = append(argv, t)
		}
	})
	switch {
	case !ok:
	case len(at.Node.Items) == 0 || at.Node.Items[0].IsScalar() && at.Node.Items[0].Text == "":
		at.Bad("the command is empty")
	default:
		at.Record(jsonText(itemTexts(at)))
	}
	return argv
}

// secretURL reads a URL that may have references, and checks its value at the moment.
func (r *sharedReader) secretURL(at place) *template.SecretText {
	if literal, found := template.URLSecret(at.Node.Text); found && at.Node.Kind == strictyaml.KindText {
		template.RefuseLiteral(at, literal, template.WithRefs)
		return nil
	}
	return r.checkedURL(at, r.Open(at))
}

// secretHeaders reads headers whose values may have references.
func (r *sharedReader) secretHeaders(at place) []template.NamedSecret {
	return r.SecretMap(at, headerNames())
}

// checkedURL returns the text if its value is a URL.
func (r *sharedReader) checkedURL(at place, s *template.SecretText) *template.SecretText {
	if s == nil {
		return nil
	}
	out, err := s.Resolve(r.Secrets)
	if err != nil { // it was resolved a moment ago
		at.Bad("%v", err)
		return nil
	}
	if msg := steps.URLProblem(out.Reveal()); msg != "" {
		at.Bad("the value of %q %s", s, msg)
		return nil
	}
	return s
}

// MinToken is how many characters a token must have.
const MinToken = 16

// token reads the secret that callers present.
func (r *sharedReader) token(at place) *template.SecretText {
	s := r.Secret(at)
	if s == nil {
		return nil
	}
	token, err := s.Resolve(r.Secrets)
	if err != nil {
		at.Bad("%s", oneline.Error(err))
		return nil
	}
	if n := utf8.RuneCountInString(token.Reveal()); n < MinToken {
		at.Bad("%v has %d characters, at least %d are needed", s, n, MinToken)
		return nil
	}
	return s
}
