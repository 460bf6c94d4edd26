package config

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/account"
	"github.com/tideover/tideover/cmd/tideover/internal/exitcode"
	"github.com/tideover/tideover/cmd/tideover/internal/guard"
	"github.com/tideover/tideover/cmd/tideover/internal/steps"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/textfmt"
)

// Short names for types of package strictyaml: a place is a value in the file, and a key
// describes one key of a map.
type (
	place = strictyaml.Place
	key   = strictyaml.Key
)

// sharedReader has the state and the methods that the readers of all sections share.
type sharedReader struct {
	template.Reader
	env      environment
	flags    map[string]string
	commands []command // of steps, jobs and notifiers; see crossCheckCommands
	targets  []place   // of URLs and Host headers whose templates may choose the host; see crossCheckTargets
}

// orMap returns the place. If it has no value, its node is replaced by an empty map.
func orMap(at place) place {
	if at.Empty() {
		at.Node = strictyaml.NewMap()
	}
	return at
}

// path returns the absolute form of a path. A relative path starts at the folder of the
// file, or at the working folder if it comes from a variable or a flag. An invalid path
// is recorded as a problem.
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
	if at.Node.Origin != "" { // from a variable or a flag
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

// readCommandLine reads a command and its arguments, a list of texts. It calls read for
// each item, and omits items for which read returns nil.
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

// secretURL reads a URL that may have references, and checks its current value.
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

// checkedURL returns s if its current value is a valid URL. Otherwise it records a problem
// and returns nil.
func (r *sharedReader) checkedURL(at place, s *template.SecretText) *template.SecretText {
	if s == nil {
		return nil
	}
	out, err := s.Resolve(r.Secrets)
	if err != nil { // rare: reading s has already resolved it
		at.Bad("%v", err)
		return nil
	}
	if msg := steps.URLProblem(out.Reveal()); msg != "" {
		at.Bad("the value of %q %s", s, msg)
		return nil
	}
	return s
}

// MinToken is the fewest characters of a token.
const MinToken = 16

// token reads the reference to a token that clients must send, and checks its length.
func (r *sharedReader) token(at place) *template.SecretText { return r.longSecret(at, MinToken) }

// callbackKey reads the reference to the key that signs callback URLs, and checks its length.
func (r *sharedReader) callbackKey(at place) *template.SecretText {
	return r.longSecret(at, minCallbackKey)
}

// longSecret reads the reference to a secret that has at least this many characters.
func (r *sharedReader) longSecret(at place, least int) *template.SecretText {
	s := r.Secret(at)
	if s == nil {
		return nil
	}
	token, err := s.Resolve(r.Secrets)
	if err != nil {
		at.Bad("%s", oneline.Error(err))
		return nil
	}
	if n := utf8.RuneCountInString(token.Reveal()); n < least {
		at.Bad("%v has %d characters, at least %d are needed", s, n, least)
		return nil
	}
	return s
}

const inheritPattern = `^[A-Za-z_][A-Za-z0-9_]*\*?$`

var inheritName = lazyregexp.New(inheritPattern)

const inheritDoc = "Further variables of the server's environment for the command: names such as SSH_AUTH_SOCK or AWS_*, or all."

func inheritSchema() *jsonschema.Schema {
	return anyOf(strictyaml.WordSchema("all")(), patternsSchema(inheritPattern)())
}

// readInherit reads a list of names of variables, or the word all. In a variable or a
// flag, commas separate the names.
func readInherit(at place) (list guard.Inherit) {
	if n := at.Node; n.Kind == strictyaml.KindText && n.Text == "all" {
		at.Record("all")
		return slices.Clone(guard.InheritAll)
	}
	if !at.IsList() && (at.Node.Origin == "" || at.Node.Kind != strictyaml.KindText) {
		at.Bad("%v, where all or a list of names is expected, such as [SSH_AUTH_SOCK]", at.Node.Kind)
		return nil
	}
	list = append(guard.Inherit{}, readList(at, func(text string) (name, wrong string) {
		if !inheritName.MatchString(text) {
			wrong = "is not the name of a variable, such as SSH_AUTH_SOCK or AWS_*"
		}
		return text, wrong
	})...)
	at.Record(jsonText([]string(list)))
	return list
}

// readList reads a list of texts. In a variable or a flag, commas separate them. parse
// returns the value of a text, or what is wrong with it. A value that is listed twice is
// a problem.
func readList[V comparable](at place, parse func(text string) (v V, wrong string)) []V {
	if at.Node.Origin != "" && at.Node.Kind == strictyaml.KindText {
		at.Node = at.Node.SplitText()
	}
	return readDistinct(at, func(at place, text string) (V, bool) {
		v, wrong := parse(text)
		if wrong != "" {
			at.Bad("%q %s", text, wrong)
		}
		return v, wrong == ""
	})
}

// readDistinct reads a list of texts with distinct values. read returns the value of a
// text; ok is false if it has recorded a problem.
func readDistinct[V comparable](at place, read func(at place, text string) (v V, ok bool)) (list []V) {
	at.Each(func(at place) {
		text, ok := at.Text()
		if !ok {
			return
		}
		v, ok := read(at, text)
		switch {
		case !ok:
		case slices.Contains(list, v):
			at.Bad("%q is listed twice", text)
		default:
			list = append(list, v)
		}
	})
	return list
}

// refuseEmpty records the message as a problem if the value is an empty list.
func refuseEmpty(at place, message string) {
	if at.IsList() && len(at.Node.Items) == 0 {
		at.Bad("%s", message)
	}
}

// present returns the names whose keys are in found.
func present(found map[string]place, names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return found[name].Node == nil })
}

// itemTexts returns the texts of a list as the file has them.
func itemTexts(at place) (texts []string) {
	for _, n := range at.Node.Items {
		texts = append(texts, n.Text)
	}
	return texts
}

// recordItems records the texts of a list as the value in effect.
func recordItems(at place) { at.Record(strings.Join(itemTexts(at), ",")) }

// readCodes reads a list of codes and ranges, all from least to most. The argument what
// names a code in messages, such as "an exit code".
func readCodes(at place, what string, least, most int) exitcode.Set {
	codes := exitcode.Set{} // not nil: an empty list matches no code, and nil means that the key is absent
	at.Each(func(at place) {
		s, ok := at.Text()
		if !ok {
			return
		}
		r, err := exitcode.ParseRange(s)
		if err != nil {
			at.Bad("%v", err)
		} else if r.First < least || r.Last > most {
			at.Bad("%q: %s must be from %d to %d", s, what, least, most)
		} else {
			codes = append(codes, r)
		}
	})
	at.Record(codes.String())
	return codes
}

func readExitCodes(at place) exitcode.Set { return readCodes(at, "an exit code", 1, 255) }

// jsonText returns a value as JSON, to record values that have no shorter text form.
func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// readAccount reads the name of an account.
func readAccount(at place) string {
	return strictyaml.ReadParsed(at, func(s string) (string, error) { return s, account.CheckName(s) })
}

// readSharedAccount reads the name of an account. It returns "" for the word none.
func readSharedAccount(at place) string {
	name := readAccount(at)
	if name == account.None {
		return ""
	}
	return name
}

var percentForm = lazyregexp.New(`^0*(100(\.0*)?|[0-9]{1,2}(\.[0-9]*)?|\.[0-9]+)%$`)

func percentSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: percentForm.String(), AllOf: []*jsonschema.Schema{{Pattern: strictyaml.AbovePattern}}}
}

// parsePercent parses a percentage above zero, and returns it as a fraction.
func parsePercent(s string) (float64, error) {
	n, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || n == 0 || !percentForm.MatchString(s) {
		return 0, fmt.Errorf("%q is not a valid percentage; want more than 0%% and at most 100%%, such as 50%%", s)
	}
	return n / 100, nil
}
