package chaos

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// ParseYAML reads a spec from YAML: seed, and rules, each either its text or the
// same as a map.
//
//	seed: 7
//	rules:
//	  - match: POST /v1/messages
//	    script: [429(retry-after=2)x2, 200]
//	    random: [fail=20%, reset=1%]
//	    delay: 50ms..200ms
//	    down: [30s every 5m as 503]
//	  - "*: 503,200 cycle"
func ParseYAML(data []byte) (s Spec, err error) {
	if len(data) > maxText {
		return s, fmt.Errorf("chaos: the spec has %d bytes; at most %d are read", len(data), maxText)
	}
	// The parser is not ours, and some inputs that nobody writes make it panic.
	defer func() {
		if r := recover(); r != nil {
			s, err = Spec{}, fmt.Errorf("chaos: not readable as YAML: %v", r)
		}
	}()
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return s, fmt.Errorf("chaos: %w", err)
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return s, errors.New("chaos: want one document, with rules: and a list of them")
	}
	if err := s.readYAML(file.Docs[0].Body); err != nil {
		return Spec{}, err
	}
	return Parse(s.String())
}

func (s *Spec) readYAML(body ast.Node) error {
	return eachKey(body, func(name string, value ast.Node) (err error) {
		switch name {
		case "seed":
			text, err := scalar(value)
			if err != nil {
				return err
			}
			s.Seed, err = parseSeed(text)
			return err
		case "rules":
			for i, item := range items(value) {
				r, err := readRule(item)
				if err != nil {
					return fmt.Errorf("chaos: rule %d: %w", i+1, err)
				}
				s.Rules = append(s.Rules, r)
			}
			return nil
		}
		return fmt.Errorf("chaos: line %d: key %q is unknown; want seed or rules", value.GetToken().Position.Line, name)
	})
}

// readRule reads a rule that is a text or a map.
func readRule(n ast.Node) (r Rule, err error) {
	if text, err := scalar(n); err == nil {
		return parseRule(text)
	}
	err = eachKey(n, func(name string, value ast.Node) error {
		if err := r.readKey(name, value); err != nil {
			return fmt.Errorf("line %d: %w", value.GetToken().Position.Line, err)
		}
		return nil
	})
	r.fill()
	return r, err
}

func (r *Rule) readKey(name string, value ast.Node) error {
	texts, err := scalars(value)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if (name != "script" && name != "random" && name != "down") && len(texts) != 1 {
		return fmt.Errorf("%s: want one value", name)
	}
	switch {
	case name == "match":
		r.Match, err = parseMatch(texts[0])
		return err
	case name == "cycle":
		if r.Cycle, err = strconv.ParseBool(texts[0]); err != nil {
			return fmt.Errorf("cycle: %q is not true or false", texts[0])
		}
		return nil
	case name == "random":
		for _, text := range texts {
			answer, share, ok := cutWord(text)
			if !ok {
				return fmt.Errorf("random: %q is not an answer with its share, such as fail=20%%", text)
			}
			if err := r.chance(answer, share, text); err != nil {
				return err
			}
		}
		return nil
	case name == "down":
		return r.readDown(texts)
	case name == "script":
		return r.set(name, strings.Join(texts, ","))
	case slices.Contains(keyNames(), name):
		return r.set(name, texts[0])
	}
	return fmt.Errorf("key %q is unknown; want match, script, cycle, %s, random or down", name, strings.Join(keyNames(), ", "))
}

func (r *Rule) readDown(texts []string) error {
	for _, text := range texts {
		list, err := words(text)
		if err != nil {
			return err
		}
		o, rest, err := parseOutage(list)
		if err != nil {
			return err
		}
		if len(rest) > 0 {
			return fmt.Errorf("down: %q is too much", rest[0])
		}
		r.Down = append(r.Down, o)
	}
	return nil
}

// eachKey calls the function for each key of a map.
func eachKey(n ast.Node, f func(name string, value ast.Node) error) error {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return fmt.Errorf("line %d: want keys and values", n.GetToken().Position.Line)
	}
	for _, v := range values {
		if err := f(v.Key.GetToken().Value, v.Value); err != nil {
			return err
		}
	}
	return nil
}

// items returns the members of a list; anything else is a list of one.
func items(n ast.Node) []ast.Node {
	if list, ok := n.(*ast.SequenceNode); ok {
		return list.Values
	}
	return []ast.Node{n}
}

// scalars returns the texts of a list, or of the one value.
func scalars(n ast.Node) (texts []string, err error) {
	for _, item := range items(n) {
		text, err := scalar(item)
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, nil
}

// scalar returns a value as it is written, whatever YAML takes it for.
func scalar(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, nil
	case *ast.LiteralNode:
		return n.Value.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	}
	return "", fmt.Errorf("line %d: %q is not a text; put quotes around it", n.GetToken().Position.Line, n.GetToken().Value)
}

// bare is what YAML takes for a text, or for a number that reads the same.
var bare = lazyregexp.New(`^[a-zA-Z0-9/][a-zA-Z0-9/=%()+. _-]*$`)

func yamlText(text string) string {
	if bare.MatchString(text) && strings.TrimSpace(text) == text {
		return text
	}
	return strings.TrimSuffix(string(encode(text)), "\n") // YAML reads JSON
}

// YAML returns the spec as YAML, with each rule as a map.
func (s Spec) YAML() []byte {
	var b strings.Builder
	if s.Seed != 0 {
		fmt.Fprintf(&b, "seed: %d\n", s.Seed)
	}
	b.WriteString("rules:\n")
	for i := range s.Rules {
		r := &s.Rules[i]
		fmt.Fprintf(&b, "  - match: %s\n", yamlText(r.Match.String()))
		list := func(name string, texts []string) {
			if len(texts) > 0 {
				fmt.Fprintf(&b, "    %s:\n", name)
			}
			for _, text := range texts {
				fmt.Fprintf(&b, "      - %s\n", yamlText(text))
			}
		}
		list("script", texts(r.Script))
		if r.Cycle {
			b.WriteString("    cycle: true\n")
		}
		for _, k := range keys() {
			if v := k.get(r); v != "" {
				fmt.Fprintf(&b, "    %s: %s\n", k.name, yamlText(v))
			}
		}
		list("random", texts(r.Random))
		list("down", texts(r.Down))
	}
	return []byte(b.String())
}

func texts[T fmt.Stringer](list []T) (out []string) {
	for _, v := range list {
		out = append(out, v.String())
	}
	return out
}
