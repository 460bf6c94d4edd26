// Package chaosfile parses a [chaos.Spec] from YAML: the rules of a server that fails on
// purpose. Package chaos itself parses only the text form, because its module has no
// dependencies.
package chaosfile

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/tideover/tideover/chaos"
)

// Parse parses a spec from YAML, with the keys seed and rules. A rule is a text, or a map
// with the same content.
//
//	seed: 7
//	rules:
//	  - match: POST /v1/messages
//	    script: [429(retry-after=2)x2, 200]
//	    random: [fail=20%, reset=1%]
//	    delay: 50ms..200ms
//	    down: [30s every 5m as 503]
//	  - "*: 503,200 cycle"
func Parse(data []byte) (s chaos.Spec, err error) {
	if len(data) > chaos.MaxText {
		return s, fmt.Errorf("chaos: the spec has %d bytes; at most %d are read", len(data), chaos.MaxText)
	}
	// go-yaml panics on some malformed inputs.
	defer func() {
		if r := recover(); r != nil {
			s, err = chaos.Spec{}, fmt.Errorf("chaos: not readable as YAML: %v", r)
		}
	}()
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return s, fmt.Errorf("chaos: %w", err)
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return s, errors.New("chaos: want one YAML document with the key rules, a list")
	}
	if err := readSpec(&s, file.Docs[0].Body); err != nil {
		return chaos.Spec{}, err
	}
	return chaos.Parse(s.String())
}

// ParseAs parses a spec as YAML if the Content-Type is YAML or JSON, otherwise in the text
// form. It is an argument for [chaos.WithSpecParser].
func ParseAs(contentType string, data []byte) (chaos.Spec, error) {
	if strings.Contains(contentType, "yaml") || strings.Contains(contentType, "json") {
		return Parse(data)
	}
	return chaos.Parse(string(data))
}

func readSpec(s *chaos.Spec, body ast.Node) error {
	return eachKey(body, func(name string, value ast.Node) (err error) {
		switch name {
		case "seed":
			text, err := scalar(value)
			if err != nil {
				return err
			}
			if s.Seed, err = strconv.ParseUint(text, 10, 64); err != nil {
				return fmt.Errorf("chaos: seed: %q is not a whole number such as 7", text)
			}
			return nil
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

// readRule converts a rule that is a text or a map.
func readRule(n ast.Node) (r chaos.Rule, err error) {
	if text, err := scalar(n); err == nil {
		return chaos.ParseRule(text)
	}
	err = eachKey(n, func(name string, value ast.Node) (err error) {
		if r, err = readKey(r, name, value); err != nil {
			return fmt.Errorf("line %d: %w", value.GetToken().Position.Line, err)
		}
		return nil
	})
	return r, err
}

// readKey returns the rule with the values of one key. Only script, random and down may
// have several values.
func readKey(r chaos.Rule, name string, value ast.Node) (chaos.Rule, error) {
	texts, err := scalars(value)
	if err != nil {
		return r, fmt.Errorf("%s: %w", name, err)
	}
	switch name {
	case "script":
		texts = []string{strings.Join(texts, ",")}
	case "random", "down":
	default:
		if len(texts) != 1 {
			return r, fmt.Errorf("%s: want one value", name)
		}
	}
	for _, text := range texts {
		if r, err = r.With(name, text); err != nil {
			return r, err
		}
	}
	return r, nil
}

// eachKey calls the function for each key of a map, and returns its first error.
func eachKey(n ast.Node, f func(name string, value ast.Node) error) error {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return fmt.Errorf("line %d: want a map of keys and values", n.GetToken().Position.Line)
	}
	for _, v := range values {
		if err := f(v.Key.GetToken().Value, v.Value); err != nil {
			return err
		}
	}
	return nil
}

// items returns the items of a list. Any other node counts as a list of one item.
func items(n ast.Node) []ast.Node {
	if list, ok := n.(*ast.SequenceNode); ok {
		return list.Values
	}
	return []ast.Node{n}
}

// scalars returns the texts of a list, or of a single value.
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

// scalar returns a value as the file has it, even if YAML parses it as a number or a
// boolean.
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
