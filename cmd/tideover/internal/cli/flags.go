package cli

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/retry"
)

// groupKey annotates a flag with the heading under which the help lists it.
const groupKey = "tideover-group"

// group puts the named flags under a heading of the help.
func group(flags *pflag.FlagSet, heading string, names ...string) {
	for _, name := range names {
		_ = flags.SetAnnotation(name, groupKey, []string{heading})
	}
}

// groupedHelp prints the help with the flags under their headings, in the order
// given; flags without one come last.
func groupedHelp(cmd *cobra.Command, headings ...string) {
	cmd.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "%s\n\nUsage:\n  %s\n", strings.TrimSpace(cmd.Long), cmd.UseLine())
		fmt.Fprintf(out, "\nExamples:\n%s\n", strings.TrimRight(cmd.Example, "\n"))
		for _, heading := range append(headings, "") {
			set := pflag.NewFlagSet(heading, pflag.ContinueOnError)
			set.SortFlags = false
			cmd.Flags().VisitAll(func(f *pflag.Flag) {
				if slices.Contains(append(f.Annotations[groupKey], ""), heading) && (heading != "" || f.Annotations[groupKey] == nil) {
					set.AddFlag(f)
				}
			})
			fmt.Fprintf(out, "\n%s:\n%s", cmp.Or(heading, "Other flags"), set.FlagUsages())
		}
	})
}

// codes is a set of exit codes: "1,5-9".
type codes struct {
	text string
	set  *[256]bool // nil means not given
}

func (c *codes) String() string { return c.text }
func (*codes) Type() string     { return "codes" }

// Set implements [pflag.Value]. Given twice, the sets add up.
func (c *codes) Set(s string) error {
	set := new([256]bool)
	if c.set != nil {
		*set = *c.set
	}
	if s == "none" {
		c.text, c.set = s, set
		return nil
	}
	for part := range strings.SplitSeq(s, ",") {
		first, last, ok := strings.Cut(strings.TrimSpace(part), "-")
		if !ok {
			last = first
		}
		lo, err1 := strconv.ParseUint(first, 10, 8)
		hi, err2 := strconv.ParseUint(last, 10, 8)
		if err1 != nil || err2 != nil || lo > hi {
			return fmt.Errorf("%q is not an exit code from 0 to 255 or a range of them, such as 1,5-9", part)
		}
		for n := lo; n <= hi; n++ {
			set[n] = true
		}
	}
	c.set = set
	c.text = strings.TrimPrefix(c.text+","+s, ",")
	return nil
}

func (c *codes) add(code uint8) {
	if c.set == nil {
		c.set = new([256]bool)
	}
	c.set[code] = true
}

func (c *codes) given() bool { return c.set != nil }

func (c *codes) has(code int) bool {
	return c.set != nil && code >= 0 && code < len(c.set) && c.set[code]
}

// pattern is a regular expression.
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

// duration is a duration in the spelling of the policies' text form, 0 included.
type duration time.Duration

func (d *duration) String() string { return time.Duration(*d).String() }
func (*duration) Type() string     { return "duration" }

// Set implements [pflag.Value].
func (d *duration) Set(s string) error {
	p, err := retry.Policy{}.With("base", s) // of a fixed schedule, which may be 0
	if err != nil {
		return errors.Unwrap(err)
	}
	*d = duration(p.Base)
	return nil
}

// size is a number of bytes: 500, 64KiB, 64MiB, 1GiB, 10MB.
type size int64

func (s *size) String() string { return textfmt.FormatSize(int64(*s)) }
func (*size) Type() string     { return "size" }

// Set implements [pflag.Value].
func (s *size) Set(text string) error {
	n, ok := textfmt.ParseSize(text)
	if !ok {
		return fmt.Errorf("%q is not a size such as 500kB, 64MiB or 0", text)
	}
	*s = size(n)
	return nil
}
