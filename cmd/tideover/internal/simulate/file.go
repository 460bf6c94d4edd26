package simulate

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/oneline"
	"github.com/tideover/tideover/sim"
)

// maxFile limits how many bytes of a file are read.
const maxFile = 1 << 21

// File is a scenario with its policies.
type File struct {
	Scenario sim.Scenario
	Policies []sim.Contestant
}

// Read reads the scenario in a file.
func Read(name string) (File, error) {
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a folder: want a file", name)
	}
	if err != nil {
		return File{}, err
	}
	f, err := os.Open(name)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return File{}, err
	}
	return Parse(name, data)
}

// Parse parses a scenario in YAML. The keys are those of [sim.Scenario], and policies. name is the
// name of the file; without its extension it is the default name of the scenario. The error lists all
// problems with their lines.
func Parse(name string, data []byte) (File, error) {
	d := strictyaml.NewDocument(name, data)
	if err := d.Err(); err != nil {
		return File{}, err
	}
	r := &reader{places: map[string]strictyaml.Place{}, broken: map[string]bool{}}
	var f File
	if d.Root.Empty() {
		d.Root.Bad("the file is empty: tideover sim --show outage prints an example")
		return f, d.Err()
	}
	r.file(d.Root, &f)
	f.Scenario.Name = cmp.Or(f.Scenario.Name, strings.TrimSuffix(filepath.Base(name), filepath.Ext(name)))
	if err := f.Scenario.Validate(); err != nil {
		r.report(d.Root, err)
		r.report(d.Root, checkPolicies(f.Policies))
	} else if len(f.Policies) > 0 {
		r.report(d.Root, sim.Check(f.Scenario, f.Policies))
	}
	if err := d.Err(); err != nil {
		return File{}, err
	}
	return f, nil
}

// checkPolicies validates the policies without a scenario.
func checkPolicies(cs []sim.Contestant) error {
	var errs []error
	for i, c := range cs {
		if err := c.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", contestant(i), err))
		}
	}
	return errors.Join(errs...)
}

// Explain returns err, an error of [sim.Check], with the names of policies instead of their
// numbers.
func (f File) Explain(err error) error {
	var errs []error
	for _, e := range strictyaml.JoinedErrors(err) {
		text := oneline.Text(e.Error())
		for i, c := range f.Policies {
			if rest, ok := strings.CutPrefix(text, contestant(i)+": "); ok {
				text = fmt.Sprintf("policy %q: %s", c.Name, rest)
			}
		}
		errs = append(errs, errors.New(text))
	}
	return errors.Join(errs...)
}

// Impossible reports whether an error of [Read] is about the contents of the file, and not about
// reading it.
func Impossible(err error) bool {
	_, ok := errors.AsType[strictyaml.FieldErrors](err)
	return ok
}

// report records the problems that the simulator has found, each at its field in the file. It skips
// fields that could not be read, which are reported already.
func (r *reader) report(root strictyaml.Place, err error) {
	for _, e := range strictyaml.JoinedErrors(err) {
		path, problem, _ := strings.Cut(e.Error(), ": ")
		problem = strings.ReplaceAll(problem, "contestants[", "policies[") // the name in the file
		at, found := r.find(path)
		if r.broken[at] {
			continue
		}
		if !found {
			root.Missing(path).Bad("%s", oneline.Text(problem))
			continue
		}
		p := r.places[at]
		if at != path && !strings.HasPrefix(path, "contestants[") {
			p = p.Missing(path)
		}
		p.Bad("%s", oneline.Text(problem))
	}
}

// find returns the longest prefix of a path that is in the file.
func (r *reader) find(path string) (at string, ok bool) {
	for path != "" {
		if _, ok := r.places[path]; ok {
			return path, true
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return "", false
}
