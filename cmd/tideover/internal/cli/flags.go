package cli

import (
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// orderedFlags returns the flags of a command and makes the help list them in the order of their
// definition. It also stops cobra from adding [flags] to the usage line, so cmd.Use must contain
// it.
func orderedFlags(cmd *cobra.Command) *pflag.FlagSet {
	cmd.DisableFlagsInUseLine = true
	cmd.Flags().SortFlags = false
	return cmd.Flags()
}

// pattern is the value of a flag: a regular expression. It is nil if the flag is not given.
type pattern struct{ *regexp.Regexp }

func (*pattern) Type() string { return "regex" }

func (p *pattern) String() string {
	if p.Regexp == nil {
		return ""
	}
	return p.Regexp.String()
}

// Set implements [pflag.Value].
func (p *pattern) Set(s string) (err error) {
	p.Regexp, err = regexp.Compile(s)
	return err
}

// duration is the value of a flag: a duration in the format of policies. 0 is allowed.
type duration time.Duration

func (d *duration) String() string { return textfmt.PolicyDuration(time.Duration(*d)) }
func (*duration) Type() string     { return "duration" }

// Set implements [pflag.Value].
func (d *duration) Set(s string) error {
	v, err := retry.ParseDuration(s)
	if err == nil {
		*d = duration(v)
	}
	return err
}

// size is the value of a flag: a number of bytes, such as 500, 64KiB, 64MiB, 1GiB or 10MB.
type size int64

func (s *size) String() string { return textfmt.FormatSize(int64(*s)) }
func (*size) Type() string     { return "size" }

// Set implements [pflag.Value].
func (s *size) Set(text string) error {
	n, ok := textfmt.ParseSize(text)
	if !ok {
		return fmt.Errorf("%q is not a size: want one such as 500kB, 64MiB or 0", text)
	}
	*s = size(n)
	return nil
}

// flagErrors collects errors about flags, so that one message lists them all.
type flagErrors []error

// add adds an error about the flag with this name, unless err is nil.
func (l *flagErrors) add(name string, err error) {
	if err != nil {
		*l = append(*l, fmt.Errorf("--%s: %w", name, err))
	}
}
