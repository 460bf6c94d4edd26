package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/watch"
)

// givenFlags returns the flags of the command line as words. It leaves out --name, which is stored
// separately, and --new, which would not continue the session.
func givenFlags(flags *pflag.FlagSet) (words []string) {
	flags.Visit(func(f *pflag.Flag) {
		switch v := f.Value.(type) {
		case pflag.SliceValue:
			for _, item := range v.GetSlice() {
				words = append(words, "--"+f.Name, item)
			}
		default:
			switch {
			case slices.Contains([]string{"name", "new"}, f.Name):
			case f.Value.Type() == "bool":
				words = append(words, "--"+f.Name+"="+f.Value.String())
			default:
				words = append(words, "--"+f.Name, f.Value.String())
			}
		}
	})
	return words
}

// checkStartable returns an error if the command, or that of a fallback, can't be started. It runs
// before a session is created.
func checkStartable(spec *session.Spec) error {
	name := spec.Start[0]
	if strings.Contains(name, "{{") {
		return nil // the name is not known yet
	}
	err := process.Startable(spec.Dir, name)
	if e, ok := errors.AsType[*process.StartError](err); ok {
		return &codedError{e, e.Code}
	}
	for _, f := range spec.Fallback {
		if missing := process.Startable(spec.Dir, f.Start[0]); missing != nil && err == nil {
			err = fmt.Errorf("--fallback: %w", missing)
		}
	}
	return err
}

// about returns what is stored to continue the session later. Relative paths in flags depend on the
// folder in which the watch was started, so that is stored, too.
func (o *watchOptions) about(spec *session.Spec, args []string) watch.About {
	a := watch.About{Command: args, Dir: spec.Dir, Flags: o.given}
	if from, err := os.Getwd(); err == nil && from != spec.Dir {
		a.From = from
	}
	return a
}
