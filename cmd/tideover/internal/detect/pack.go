package detect

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

//go:embed packs/*.yaml
var packFiles embed.FS

const maxPack = 256 << 10 // bytes of a pack's file

// Pack is a [Spec] that can be used. It is not changed after it is made, and may
// be shared.
type Pack struct {
	spec     Spec
	lines    []*rule // of text, the first that matches counts
	events   []*rule
	messages []message
	exits    map[int]Exit
	literals [][]byte // an event without any of them is not decoded
}

// message is a [Message] that can be used.
type message struct {
	event condition
	text  path
}

// Name returns the name of the pack.
func (p *Pack) Name() string { return p.spec.Name }

// Spec returns what the pack was made of, without what it extends.
func (p *Pack) Spec() Spec { return p.spec }

// Names returns the names of the built-in packs, generic last.
func Names() []string {
	return []string{"claude-code", "codex", "gemini", "opencode", "aider", "generic"}
}

// Builtin returns a built-in pack.
func Builtin(name string) (*Pack, error) {
	if !slices.Contains(Names(), name) {
		return nil, unknownPack(name)
	}
	text, err := packFiles.ReadFile("packs/" + name + ".yaml")
	if err != nil {
		return nil, err
	}
	return Parse(name, text)
}

// Parse reads a pack. An error names the pack, the rule and the field, or shows
// the line of the file.
func Parse(name string, text []byte) (*Pack, error) {
	spec, err := decodeSpec(text)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", name, err)
	}
	if spec.Name == "" {
		spec.Name = name
	}
	if spec.Name != name {
		return nil, fmt.Errorf("pack %s: name: the file says %q", name, spec.Name)
	}
	return Compile(spec)
}

func decodeSpec(text []byte) (spec Spec, err error) {
	if len(text) > maxPack {
		return spec, fmt.Errorf("the file has %d bytes; at most %d are read", len(text), maxPack)
	}
	// The parser is not ours, and some inputs that nobody writes make it panic.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not readable as YAML: %v", r)
		}
	}()
	err = yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&spec)
	if err != nil && !errors.Is(err, io.EOF) { // an empty file is an empty pack
		return spec, errors.New(yaml.FormatError(err, false, true))
	}
	return spec, nil
}

// Compile checks a pack and makes it usable. The rules of the pack that it
// extends follow its own, and so does the rest; one of its rules with the id of
// theirs replaces it.
func Compile(spec Spec) (*Pack, error) {
	p := &Pack{spec: spec, exits: maps.Clone(spec.ExitCodes)}
	var errs []error
	if spec.Name == "" {
		errs = append(errs, errors.New("name: missing"))
	}
	if p.exits == nil {
		p.exits = map[int]Exit{}
	}
	for code, exit := range p.exits {
		if code < 1 || code > 255 || exit.Reason == Unknown {
			errs = append(errs, fmt.Errorf("exit-codes.%d: want a code from 1 to 255 with a reason", code))
		}
	}
	for i, m := range spec.Messages {
		if err := p.addMessage(m); err != nil {
			errs = append(errs, fmt.Errorf("messages[%d]: %w", i, err))
		}
	}
	ids := map[string]bool{}
	for i, r := range spec.Rules {
		if err := p.addRule(r, ids); err != nil {
			id := r.ID
			if id == "" {
				id = fmt.Sprintf("rules[%d]", i)
			}
			errs = append(errs, fmt.Errorf("rule %s: %w", id, err))
		}
	}
	if spec.Extends != "" {
		errs = append(errs, p.extend(ids))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("pack %s: %w", spec.Name, err)
	}
	return p, nil
}

func (p *Pack) addMessage(m Message) error {
	event, err1 := compileCondition(m.Event)
	text, err2 := parsePath(m.Text)
	if err2 != nil {
		err2 = fmt.Errorf("text: %w", err2)
	}
	if err := errors.Join(err1, err2, checkLiterals(m.Literals, false)); err != nil {
		return err
	}
	p.messages = append(p.messages, message{event, text})
	p.addLiterals(m.Literals)
	return nil
}

func (p *Pack) addRule(spec Rule, ids map[string]bool) error {
	if spec.ID == "" {
		return errors.New("id: missing")
	}
	if ids[spec.ID] {
		return errors.New("id: another rule has it")
	}
	ids[spec.ID] = true
	r, err := compileRule(p.spec.Name, spec)
	if err != nil {
		return err
	}
	p.add(r)
	return nil
}

func (p *Pack) add(r *rule) {
	if r.trust == ByEvent {
		p.events = append(p.events, r)
		p.addLiterals(r.Literals)
	} else {
		p.lines = append(p.lines, r)
	}
}

func (p *Pack) addLiterals(list []string) {
	for _, l := range list {
		if !slices.ContainsFunc(p.literals, func(have []byte) bool { return string(have) == l }) {
			p.literals = append(p.literals, []byte(l))
		}
	}
}

// extend adds what the pack does not say itself. A user's pack may have the name
// of the built-in one that it extends.
func (p *Pack) extend(ids map[string]bool) error {
	base, err := Builtin(p.spec.Extends)
	if err != nil {
		return fmt.Errorf("extends: %w", err)
	}
	for _, r := range slices.Concat(base.lines, base.events) {
		if !ids[r.ID] {
			p.add(r)
		}
	}
	p.messages = append(p.messages, base.messages...)
	for _, l := range base.literals {
		p.addLiterals([]string{string(l)})
	}
	for code, exit := range base.exits {
		if _, own := p.exits[code]; !own {
			p.exits[code] = exit
		}
	}
	return nil
}

// unknownPack says which packs there are, and which one may be meant.
func unknownPack(name string) error {
	best, most := "", 1
	for _, known := range Names() {
		if n := alike(strings.ToLower(name), known); n > most {
			best, most = known, n
		}
	}
	msg := fmt.Sprintf("pack %q is unknown", name)
	if best != "" {
		msg += fmt.Sprintf(" (did you mean %q?)", best)
	}
	return fmt.Errorf("%s; the packs are %s", msg, strings.Join(Names(), ", "))
}

// alike counts the pairs of neighbouring letters that two words share, which
// finds a name by a part of it as well as by a misspelling.
func alike(a, b string) (n int) {
	for i := range len(a) - 1 {
		if strings.Contains(b, a[i:i+2]) {
			n++
		}
	}
	return n
}
