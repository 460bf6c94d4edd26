package detect

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"
)

//go:embed packs/*.yaml
var packFiles embed.FS

const maxPack = 256 << 10 // bytes of a pack's file

// Pack is a compiled [Spec]. It is immutable and may be shared.
type Pack struct {
	spec     Spec
	lines    []*rule // for text; the first match counts
	events   []*rule
	messages []message
	exits    map[int]Exit
	literals [][]byte // an event without any of these is not decoded
	movedOn  [][]byte // literals of MovedOn rules, used only while there is something to cancel
	session  []*sessionRule
}

// message is a compiled [Message].
type message struct {
	event    condition
	text     path
	literals []string
}

// Name returns the name of the pack.
func (p *Pack) Name() string { return p.spec.Name }

// Spec returns the source of the pack, without the pack that it extends. It must not be changed.
func (p *Pack) Spec() Spec { return p.spec }

// Names returns the names of the built-in packs, generic last.
func Names() []string {
	return []string{"claude-code", "codex", "gemini", "qwen", "agy", "copilot-cli", "cursor-agent", "opencode", "aider", "generic"}
}

// lookup finds a pack by its name, for a pack that extends it.
type lookup func(name string) (*Pack, error)

// builtins has the built-in packs. Compiling one takes milliseconds, so each is compiled at its
// first use.
var builtins = func() map[string]func() (*Pack, error) {
	packs := map[string]func() (*Pack, error){}
	for _, name := range Names() {
		packs[name] = sync.OnceValues(func() (*Pack, error) {
			text, err := packFiles.ReadFile("packs/" + name + ".yaml")
			if err != nil {
				return nil, err
			}
			return parse(name, text, func(base string) (*Pack, error) { return packs[base]() })
		})
	}
	return packs
}()

// Builtin returns the built-in pack with this name. Calls with the same name return the same pack.
func Builtin(name string) (*Pack, error) {
	if p := builtins[name]; p != nil {
		return p()
	}
	return nil, unknownPack(name)
}

// Parse parses a pack in YAML or JSON. An error names the pack, the rule and the field. For YAML it
// also shows the line.
func Parse(name string, text []byte) (*Pack, error) { return parse(name, text, Builtin) }

// Load reads a pack from a file. A pack without a name gets the name of the file, without its
// extension.
func Load(path string) (*Pack, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxPack+1))
	if err != nil {
		return nil, err
	}
	base := filepath.Base(path)
	name := strings.TrimSuffix(base, filepath.Ext(base))
	spec, err := decodeSpec(text)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", name, err)
	}
	spec.Name = cmp.Or(spec.Name, name)
	return Compile(spec)
}

func parse(name string, text []byte, base lookup) (*Pack, error) {
	spec, err := decodeSpec(text)
	if err != nil {
		return nil, fmt.Errorf("pack %s: %w", name, err)
	}
	if spec.Name = cmp.Or(spec.Name, name); spec.Name != name {
		return nil, fmt.Errorf("pack %s: the file has another name: %q", name, spec.Name)
	}
	return compile(spec, base)
}

func decodeSpec(text []byte) (spec Spec, err error) {
	if len(text) > maxPack {
		return spec, fmt.Errorf("the file is too long: want at most %d bytes", maxPack)
	}
	if json.Valid(text) {
		return decodeJSON(text)
	}
	// The parser is third-party code, and some unusual inputs make it panic.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("not valid YAML: %v", r)
		}
	}()
	err = yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&spec)
	if err != nil && !errors.Is(err, io.EOF) { // an empty file is an empty pack
		return spec, errors.New(yaml.FormatError(err, false, true))
	}
	return spec, nil
}

// Compile checks a spec and returns the pack. If the spec extends another pack, the rules of that
// pack follow, except rules with an id that the spec uses itself.
func Compile(spec Spec) (*Pack, error) { return compile(spec, Builtin) }

func compile(spec Spec, base lookup) (*Pack, error) {
	p := &Pack{spec: spec, exits: maps.Collect(maps.All(spec.ExitCodes))}
	var errs []error
	if spec.Name == "" {
		errs = append(errs, errors.New("name is missing"))
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
			errs = append(errs, fmt.Errorf("rule %s: %w", cmp.Or(r.ID, fmt.Sprintf("rules[%d]", i)), err))
		}
	}
	errs = append(errs, p.addSession(spec.Session)...)
	if spec.Extends != "" {
		errs = append(errs, p.extend(base, ids))
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
	p.messages = append(p.messages, message{event, text, m.Literals})
	addLiterals(&p.literals, m.Literals)
	return nil
}

func (p *Pack) addRule(spec Rule, ids map[string]bool) error {
	if spec.ID == "" {
		return errors.New("id is missing")
	}
	if ids[spec.ID] {
		return errors.New("id: another rule has the same id")
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
	switch {
	case r.trust != ByEvent:
		p.lines = append(p.lines, r)
		return
	case r.MovedOn:
		addLiterals(&p.movedOn, r.Literals)
	default:
		addLiterals(&p.literals, r.Literals)
	}
	p.events = append(p.events, r)
}

func addLiterals(to *[][]byte, list []string) {
	for _, l := range list {
		if !slices.ContainsFunc(*to, func(have []byte) bool { return string(have) == l }) {
			*to = append(*to, []byte(l))
		}
	}
}

// extend adds everything of the base pack that the pack does not define. A pack may have the name
// of the built-in pack that it extends, but the configuration rejects that, because names of packs
// must be unique there.
func (p *Pack) extend(find lookup, ids map[string]bool) error {
	base, err := find(p.spec.Extends)
	if err != nil {
		return fmt.Errorf("extends: %w", err)
	}
	for _, r := range slices.Concat(base.lines, base.events) {
		if !ids[r.ID] {
			p.add(r)
		}
	}
	p.session = append(p.session, base.session...)
	p.messages = append(p.messages, base.messages...)
	for _, m := range base.messages {
		addLiterals(&p.literals, m.literals)
	}
	exits := maps.Clone(base.exits)
	maps.Copy(exits, p.exits)
	p.exits = exits
	return nil
}

// unknownPack returns an error with the known packs and a suggestion.
func unknownPack(name string) error {
	msg := fmt.Sprintf("pack %q is unknown", name)
	if best := closest(name, Names()); best != "" {
		msg += fmt.Sprintf(" (did you mean %q?)", best)
	}
	return fmt.Errorf("%s; the packs are %s", msg, strings.Join(Names(), ", "))
}

// closest returns the most similar word; "" if none is similar.
func closest(name string, words []string) (best string) {
	most := 1
	for _, w := range words {
		if n := alike(strings.ToLower(name), w); n > most {
			best, most = w, n
		}
	}
	return best
}

// alike counts the pairs of neighbouring letters that two words share. The count is high for a
// misspelling of a word, and also for a part of it.
func alike(a, b string) (n int) {
	for i := range len(a) - 1 {
		if strings.Contains(b, a[i:i+2]) {
			n++
		}
	}
	return n
}
