package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tideover/tideover/breaker"
	"github.com/tideover/tideover/cmd/tideover/internal/plan"
	"github.com/tideover/tideover/cmd/tideover/internal/simulate"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
	"github.com/tideover/tideover/sim"
	"github.com/tideover/tideover/sim/advise"
)

// makeFolders creates the folders for files, before the simulation, so that a wrong path costs no time.
func (o *adviseOptions) makeFolders() error {
	var errs flagErrors
	for name, dir := range map[string]string{"show": o.show, "html": o.html} {
		if dir != "" {
			errs.add(name, os.MkdirAll(dir, 0o777))
		}
	}
	return errors.Join(errs...)
}

// writeFiles writes the scenarios of the advice, and the pages of a simulation of them, into the
// folders that the flags name.
func (o *adviseOptions) writeFiles(ctx context.Context, cases []advise.Case, a *advise.Advice) error {
	for _, c := range cases {
		file := simulate.File{Scenario: c.Scenario, Policies: o.comparedPolicies(a)}
		if len(c.Scenario.Services) == 0 { // writers have neither breakers nor attempt timeouts
			file.Policies = file.Policies[:1]
		}
		name := filepath.Base(c.Scenario.Name)
		if o.show != "" {
			if err := plan.WriteFile(filepath.Join(o.show, name+".yaml"), []byte(file.YAML())); err != nil {
				return fmt.Errorf("--show: %w", err)
			}
		}
		if o.html == "" {
			continue
		}
		report, err := sim.Run(ctx, file.Scenario, file.Policies, sim.Options{Seed: a.Seed, Workers: o.options.Workers})
		if err != nil {
			return err
		}
		var page bytes.Buffer
		view := &simulate.View{
			Scenario: file.Scenario, Contestants: file.Policies, Report: report,
			Command: textfmt.ShellWords([]string{"tideover", "sim", name + ".yaml", "--seed", fmt.Sprint(a.Seed)}),
		}
		if err := simulate.HTML(&page, view); err != nil {
			return err
		}
		if err := plan.WriteFile(filepath.Join(o.html, name+".html"), page.Bytes()); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	return nil
}

// comparedPolicies returns the advised policy, the caller's own ones, and naive ones.
func (o *adviseOptions) comparedPolicies(a *advise.Advice) []sim.Contestant {
	advised, _ := retry.Parse(a.Policy) // its own text form
	list := []sim.Contestant{{Name: advisedName, Policy: advised}}
	if a.Breaker {
		list[0].Breaker = new(breaker.Config)
	}
	for _, c := range slices.Concat(naivePolicies(), o.own) {
		if c.Policy.TotalTimeout == 0 || c.Policy.TotalTimeout > a.Deadline {
			c.Policy.TotalTimeout = a.Deadline
		}
		list = append(list, c)
	}
	return list
}

// advisedName is the name of the advised policy beside others.
const advisedName = "advised"

// naivePolicies returns the policies that many programs start with.
func naivePolicies() (list []sim.Contestant) {
	for _, n := range [][2]string{{"one-attempt", "fixed(0s) attempts=1"}, {"three-attempts", "fixed(1s) attempts=3"}, {"exponential", "exponential(1s) jitter=full attempts=5"}} {
		p, _ := retry.Parse(n[1]) // a test parses them
		list = append(list, sim.Contestant{Name: n[0], Policy: p})
	}
	return list
}
