package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const manLong = `Writes manual pages into a folder, one for each command, as files for man:
tideover.1, tideover-exec.1 and so on, and tideover-policy.7. They contain the text
of --help.`

// newMan returns the command that writes the manual pages. It is hidden, because only packagers
// need it.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write manual pages",
		Long:   manLong,
		Hidden: true,
		Args:   exactlyOne("folder"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeManual(cmd.Root(), args[0], thisBuild().Version)
		},
	}
}

// writeManual writes the page of a command and of all its subcommands.
func writeManual(cmd *cobra.Command, dir, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("man: %w", err)
	}
	file := filepath.Join(dir, manName(cmd)+"."+manSection(cmd))
	if err := os.WriteFile(file, []byte(manPage(cmd, version)), 0o644); err != nil {
		return fmt.Errorf("man: %w", err)
	}
	for _, sub := range manCommands(cmd) {
		if err := writeManual(sub, dir, version); err != nil {
			return err
		}
	}
	return nil
}

// manCommands returns the subcommands that have a manual page: all that --help lists, except the
// command help.
func manCommands(cmd *cobra.Command) (list []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if (sub.IsAvailableCommand() || sub.IsAdditionalHelpTopicCommand() && !sub.Hidden) && sub.Name() != "help" {
			list = append(list, sub)
		}
	}
	return list
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manSection returns 1 for commands and 7 for help topics.
func manSection(cmd *cobra.Command) string {
	if cmd.IsAdditionalHelpTopicCommand() {
		return "7"
	}
	return "1"
}

// manPage returns the manual page of a command. It contains no date, so that the same version
// always has the same pages.
func manPage(cmd *cobra.Command, version string) string {
	p := &roff{}
	p.title(strings.ToUpper(manName(cmd)), manSection(cmd), "tideover "+version)
	p.section("NAME")
	p.line(escape(manName(cmd)) + ` \- ` + escape(manShort(cmd)))
	if cmd.Runnable() {
		p.section("SYNOPSIS")
		p.line(bold(cmd.UseLine()))
	}
	p.section("DESCRIPTION")
	p.text(cmp.Or(cmd.Long, cmd.Short+"."))
	if listsExits(cmd) {
		p.section("EXIT STATUS")
		for _, line := range exitLines(cmd) {
			p.item(escape(line.label), line.means)
		}
	}
	p.commands("COMMANDS", manCommands(cmd))
	p.options(cmd.NonInheritedFlags())
	p.options(cmd.InheritedFlags())
	if cmd.Example != "" {
		p.section("EXAMPLES")
		p.literal(strings.Split(strings.Trim(cmd.Example, "\n"), "\n"))
	}
	if cmd.HasParent() {
		p.commands("SEE ALSO", []*cobra.Command{cmd.Parent()})
	}
	return p.String()
}

// manShort returns the line that apropos shows: the short help, beginning with a lower-case letter.
func manShort(cmd *cobra.Command) string {
	if s := cmd.Short; len(s) > 1 && strings.ToUpper(s[:2]) != s[:2] { // not for acronyms
		return strings.ToLower(s[:1]) + s[1:]
	}
	return cmd.Short
}

// options writes a section with the flags that --help lists.
func (p *roff) options(flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	p.section("OPTIONS")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := bold("--" + f.Name)
		if f.Shorthand != "" {
			name = bold("-"+f.Shorthand) + ", " + name
		}
		if value != "" {
			name += " " + italic(value)
		}
		p.item(name, usage+manDefault(f))
	})
}

// manDefault returns the default of a flag in parentheses; empty if the default is a zero value.
func manDefault(f *pflag.Flag) string {
	if slices.Contains([]string{"", "0", "0s", "false", "[]"}, f.DefValue) {
		return ""
	}
	return fmt.Sprintf(" (default %s)", f.DefValue)
}

// commands writes a section that lists the manual pages of commands.
func (p *roff) commands(title string, list []*cobra.Command) {
	if len(list) == 0 {
		return
	}
	p.section(title)
	for _, c := range list {
		p.item(bold(manName(c))+"("+manSection(c)+")", c.Short)
	}
}

// roff builds a manual page in the roff language. It uses only requests that every implementation
// of man supports.
type roff struct{ strings.Builder }

func (p *roff) line(s string) { p.WriteString(s + "\n") }

func (p *roff) title(name, section, source string) {
	p.line(fmt.Sprintf(`.TH "%s" "%s" "" "%s" "tideover manual"`, escape(name), section, escape(source)))
	p.line(".nh\n.ad l") // no hyphenation or justification: names of flags and files stay whole
}

func (p *roff) section(name string) { p.line(".SH " + escape(name)) }

// item writes a term, which must be escaped already, and its explanation.
func (p *roff) item(term, meaning string) {
	p.line(".TP\n" + term)
	p.line(escape(strings.Join(strings.Fields(meaning), " ")))
}

// text writes help text. man wraps its paragraphs; indented lines are tables or examples and keep
// their line breaks.
func (p *roff) text(s string) {
	var block []string
	for line := range strings.SplitSeq(strings.Trim(s, "\n"), "\n") {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "\t") {
			block = append(block, line)
			continue
		}
		p.literal(block)
		block = nil
		if strings.TrimSpace(line) == "" {
			p.line(".PP")
			continue
		}
		p.line(escape(line))
	}
	p.literal(block)
}

// literal writes lines that man must not join or wrap.
func (p *roff) literal(lines []string) {
	if len(lines) == 0 {
		return
	}
	p.line(".nf")
	for _, line := range lines {
		p.line(escape(strings.TrimRight(line, " ")))
	}
	p.line(".fi")
}

func bold(s string) string   { return `\fB` + escape(s) + `\fR` }
func italic(s string) string { return `\fI` + escape(s) + `\fR` }

// escape escapes a line of text, so that man shows it unchanged: no requests, no escape sequences,
// and ASCII characters that can be copied into a shell.
func escape(s string) string {
	var b strings.Builder
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		b.WriteString(`\&`)
	}
	for _, c := range s {
		text, special := roffChars[c]
		switch {
		case special:
			b.WriteString(text)
		case c > '~':
			fmt.Fprintf(&b, `\[u%04X]`, c)
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// roffChars maps characters that roff would interpret or replace to their escaped form.
var roffChars = map[rune]string{
	'\\': `\e`, '-': `\-`, '\'': `\(aq`, '"': `\(dq`, '`': `\(ga`, '^': `\(ha`, '~': `\(ti`, '\n': " ", '\r': " ",
}
