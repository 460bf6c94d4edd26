package template

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/internal/secret"
)

// Reader reads texts from a file and checks that their references can be resolved.
type Reader struct {
	Dir     string // where relative paths of references start
	Secrets secret.Resolver
}

// RefuseLiteral records a secret that stands in the file, without repeating it.
func RefuseLiteral(at strictyaml.Place, literal string, mode RefMode) {
	at.Refuse(literal, writeReference[mode])
}

// Text reads a text with templates. The value is called name where it is used.
func (r Reader) Text(at strictyaml.Place, name string, mode RefMode, fields Fields) (*Text, bool) {
	s, ok := at.Text()
	if !ok {
		return nil, false
	}
	literal, found := literalSecret(name, s)
	if !found {
		literal, found = strictyaml.KnownSecret(s)
	}
	if found {
		RefuseLiteral(at, literal, mode)
		return nil, false
	}
	t, err := Parse(s, mode, fields)
	if err != nil {
		at.Bad("%v", err)
		return nil, false
	}
	return t, r.checkRefs(at, t)
}

// checkRefs records references that can't be resolved.
func (r Reader) checkRefs(at strictyaml.Place, t *Text) bool {
	var errs []error
	for _, ref := range t.refs {
		if _, err := r.Secrets.Resolve(ref, r.Dir); err != nil {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		at.Bad("%s", oneline.Error(err))
		return false
	}
	return true
}

// Secret reads a text that is a secret as a whole.
func (r Reader) Secret(at strictyaml.Place) *SecretText {
	s, ok := at.Text()
	if !ok {
		return nil
	}
	if name, ok := strings.CutPrefix(at.Node.Origin, "env "); ok && !IsRef(s) {
		// The variable holds the secret itself: refer to the variable.
		s = fmt.Sprintf("${env:%s}", name)
	}
	if literal, found := strictyaml.KnownSecret(s); found {
		RefuseLiteral(at, literal, WithRefs)
		return nil
	}
	if !strings.Contains(s, "${") {
		RefuseLiteral(at, s, WithRefs)
		return nil
	}
	t, err := Parse(s, WithRefs, Fields{})
	if err == nil && len(t.refs) == 0 {
		RefuseLiteral(at, s, WithRefs)
		return nil
	}
	if err != nil {
		at.Bad("%v", err)
		return nil
	}
	if !r.checkRefs(at, t) {
		return nil
	}
	at.Record(s)
	return NewSecretText(t, r.Dir)
}

// Open reads a text that may have references to secrets, and no templates.
func (r Reader) Open(at strictyaml.Place) *SecretText {
	if strings.Contains(at.Node.Text, "{{") {
		at.Bad("templates can't be used here")
		return nil
	}
	t, ok := r.Text(at, "", WithRefs, Fields{})
	if !ok {
		return nil
	}
	at.Record(t.src)
	return NewSecretText(t, r.Dir)
}

// NamedText is an entry of a map of texts, such as a header.
type NamedText struct {
	Name string
	Text *Text
}

// Map reads a map of texts, sorted by name. wrong returns what is wrong with a name, or
// ""; each is called with every text and its place, and may be nil.
func (r Reader) Map(at strictyaml.Place, fields Fields, wrong func(name string) string, each func(strictyaml.Place, *Text)) (list []NamedText) {
	if !at.IsMap() {
		at.Bad("%v, where a map is expected", at.Node.Kind)
		return nil
	}
	at.CheckKeys(func(key string) (message string, ok bool) {
		if what := wrong(key); what != "" {
			return `"` + key + `" ` + what, false
		}
		return "", true
	})
	for _, p := range at.Node.Pairs {
		here := at.Child(p.Key.Text, p.Val)
		t, ok := r.Text(here, p.Key.Text, WithRefs, fields)
		if !ok {
			continue
		}
		if each != nil {
			each(here, t)
		}
		list = append(list, NamedText{Name: p.Key.Text, Text: t})
		here.Record(t.src)
	}
	slices.SortFunc(list, func(a, b NamedText) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// NamedSecret is a header or a variable whose value may be a secret.
type NamedSecret struct {
	Name  string
	Value *SecretText
}

// SecretMap reads a map of texts without templates, sorted by name. wrong returns what is
// wrong with a name, or "".
func (r Reader) SecretMap(at strictyaml.Place, wrong func(name string) string) (list []NamedSecret) {
	for _, e := range r.Map(at, Fields{}, wrong, nil) {
		list = append(list, NamedSecret{e.Name, NewSecretText(e.Text, r.Dir)})
	}
	return list
}
