package config_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
)

func TestBriefIsALine(t *testing.T) {
	load := func(text string) error {
		_, err := config.Load(config.Source{Path: "tideover.yaml", Data: []byte("version: 1\n" + text), Environ: environ})
		return err
	}
	for _, c := range []struct {
		name  string
		err   error
		first string
		more  int
	}{
		{"one problem, without its excerpt", load("providers: {openai: {priority: urgent}}"), `tideover.yaml:2:32: providers.openai.priority: "urgent" is not one of lowest, low, normal, high, highest`, 0},
		{"the first of three", load("providers: {openai: {priority: urgent, rate: 5, max-body: much}}"), `tideover.yaml:2:32: providers.openai.priority: "urgent" is not one of lowest, low, normal, high, highest`, 2},
		{"in another error", fmt.Errorf("serve: %w", load("x: 1\ny: 2\n")), `tideover.yaml:2:1: key "x" is unknown; want version, policies, notify, providers, gateway, workflows, engine, server, audit, alarm, tracing, detect, sessions, watch, nip90`, 1},
		{"errors that were joined", errors.Join(errors.New("one\ntwo"), errors.New("three")), "one; two", 1},
		{"any other", errors.New("gone"), "gone", 0},
		{"nothing", nil, "", 0},
	} {
		if first, more := strictyaml.Brief(c.err); first != c.first || more != c.more {
			t.Errorf("%s: Brief = %q, %d, want %q, %d", c.name, first, more, c.first, c.more)
		}
	}
}
