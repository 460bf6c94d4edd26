package detect

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
)

// macros has pairs: a word in braces, which a pattern in a pack may contain, and its replacement.
var macros = []string{
	// The beginning of a message: at the start of its line, after a timestamp and words that mark
	// an error, or as the text of an error in JSON.
	"{lead}", `^(?:\[?\d{4}-\d\d-\d\d[t ][\d:.,z+-]+\]? )?` +
		`(?:\[?(?:[a-z_-]+ )?[\w.]*(?:error|exception|fatal)\]?(?:: ?| \(?\d{3}\)?:? ?)|\\?"(?:message|error|detail)\\?": ?\\?"){0,3}` +
		`(?:\(?\d{3}\)? ?[:·-]? ?)?`,
	"{end}", `[.!"'\\,;\])}]*$`,
	"{limit}", `(?:too many requests|rate[ _-]?limit(?:ed| exceeded| reached| hit| error))`,
	"{duration}", `(?P<duration>(?:` + durationPart + `,?(?: and)? ?)*` + durationPart + `\b)`,
	"{moment}", `(?P<moment>` + momentText + `)`,
	"{date}", `(?P<date>` + dateText + `)`,
	"{epoch}", `(?P<epoch>\d{10}(?:\d{3})?)\b`,
	"{seconds}", `(?P<seconds>\d+(?:\.\d+)?)`,
}

// braced matches words in braces. \p{Greek} and \x{1F600} belong to the regular expression, and \{
// is a brace.
var braced = lazyregexp.New(`(\\[pPx]?)?\{([A-Za-z][\w-]*)\}`)

// compilePattern replaces the words in braces and compiles the pattern of a line.
func compilePattern(text string) (*regexp.Regexp, error) {
	text = strings.NewReplacer(macros...).Replace(text)
	for _, m := range braced.FindAllStringSubmatch(text, -1) {
		if m[1] == "" {
			return nil, fmt.Errorf("line: %w", unknownMacro(m[2]))
		}
	}
	pattern, err := regexp.Compile("(?i)" + text)
	if err != nil {
		return nil, fmt.Errorf("line: %w", err)
	}
	return pattern, nil
}

func unknownMacro(name string) error {
	var words []string
	for i := 0; i < len(macros); i += 2 {
		words = append(words, macros[i])
	}
	msg := fmt.Sprintf("{%s} is unknown", name)
	if best := closest("{"+name+"}", words); best != "" {
		msg += fmt.Sprintf(" (did you mean %s?)", best)
	}
	return fmt.Errorf(`%s; the words are %s; write \{ for a brace`, msg, strings.Join(words, ", "))
}

// rule is a compiled [Rule].
type rule struct {
	Rule
	pack    string
	trust   Trust
	pattern *regexp.Regexp // nil for an event
	groups  []string       // format of each group of the pattern; "" for none
	event   condition
	until   []fieldAt
	wait    time.Duration // of For
	at      *wall         // of At; nil means none
}

type fieldAt struct {
	path path
	as   string
}

// compileRule checks and compiles a rule of the named pack. The errors name the fields of the rule.
func compileRule(pack string, spec Rule) (*rule, error) {
	r := &rule{Rule: spec, pack: pack}
	errs := []error{r.checkKind(), r.checkVerdict()}
	var err error
	switch {
	case spec.Line != "":
		r.trust, err = ByLine, r.compileLine(spec.Line)
	case spec.Header != "":
		r.trust, err = ByHeader, r.compileHeader()
	default:
		r.trust = ByEvent
		r.event, err = compileCondition(spec.Event)
	}
	if err := errors.Join(append(errs, err, r.compileUntil(), checkLiterals(r.Literals, spec.Line != ""))...); err != nil {
		return nil, err
	}
	return r, r.checkExamples()
}

// checkExamples returns an error for examples that the rule alone does not match.
func (r *rule) checkExamples() error {
	p := &Pack{spec: Spec{Name: r.pack}}
	p.add(r)
	var errs []error
	for i, example := range r.Examples {
		d := New(p, Options{Location: time.UTC})
		d.open = true
		_, _ = d.Stream().Write([]byte(example))
		if _, list := d.decide(1); len(list) == 0 {
			errs = append(errs, fmt.Errorf("examples[%d]: the rule does not match %q", i, textfmt.TruncateWithin(example, maxShown, "...")))
		}
	}
	return errors.Join(errs...)
}

func (r *rule) checkKind() error {
	kinds := 0
	for _, given := range []bool{len(r.Event) > 0, r.Header != "", r.Line != ""} {
		if given {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return fmt.Errorf("%d of event, header and line are given: want exactly one", kinds)
	case len(r.Until) > 0 && len(r.Event) == 0:
		return errors.New("until: only an event has fields: in a line, use a group such as {duration}")
	case len(r.Context) > 0 && r.Line == "":
		return errors.New("context: only allowed for a line")
	}
	return checkTexts("context", r.Context, true)
}

func (r *rule) checkVerdict() error {
	r.Terminal = r.Terminal || r.Reason == Terminal
	switch {
	case r.Reason == Crashed && !r.Fallback:
		return errors.New("reason: crashed needs fallback: true")
	case r.Reason == Unknown && !r.Alive && !r.MovedOn:
		return errors.New("reason is missing")
	case !slices.Contains([]Reason{Unknown, RateLimit, ContextFull, Terminal, Overloaded, Crashed}, r.Reason):
		return fmt.Errorf("reason: %s is not allowed in a rule: it comes from the exit code", r.Reason)
	case r.MovedOn && (r.Reason != Unknown || r.Alive || r.Terminal || r.waits()):
		return errors.New("moved-on: cancels earlier matches, so reason, alive, terminal, for, at and until are not allowed")
	}
	return r.checkFlags()
}

// checkFlags returns an error for flags of a rule that contradict each other.
func (r *rule) checkFlags() error {
	switch {
	case r.Alive && r.Terminal:
		return errors.New("alive: can't be used with terminal")
	case r.Terminal && r.waits():
		return errors.New("terminal: can't be used with for, at or until: there is nothing to wait for")
	case r.Fallback && (r.Alive || r.MovedOn):
		return errors.New("fallback: can't be used with alive or moved-on")
	}
	return nil
}

// waits reports whether the rule sets a wait or says where the output states one.
func (r *rule) waits() bool { return r.For != "" || r.At != "" || len(r.Until) > 0 }

func (r *rule) compileLine(pattern string) (err error) {
	if r.pattern, err = compilePattern(pattern); err != nil {
		return err
	}
	for _, name := range r.pattern.SubexpNames() {
		as := strings.ReplaceAll(name, "_", "-")
		if as != "" && forms[as] == nil {
			return fmt.Errorf("line: the group %q is not a format of a time: want one of %s", name, formNames())
		}
		r.groups = append(r.groups, as)
	}
	return nil
}

func (r *rule) compileHeader() error {
	name := strings.ToLower(r.Header)
	if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
		return fmt.Errorf("header: %q is not the name of a header", r.Header)
	}
	r.Literals = append(r.Literals, name)
	form := "retry_after"
	if strings.HasSuffix(name, "-ms") {
		form = "milliseconds"
	}
	return r.compileLine(`^(?:< ?)?` + name + ` ?: ?(?P<` + form + `>[\w:, .+-]+)$`)
}

func (r *rule) compileUntil() error {
	for i, f := range r.Until {
		p, err := parsePath(f.Path)
		if err != nil {
			return fmt.Errorf("until[%d].path: %w", i, err)
		}
		if forms[f.As] == nil {
			return fmt.Errorf("until[%d].as: %q is unknown: want one of %s", i, f.As, formNames())
		}
		r.until = append(r.until, fieldAt{p, f.As})
	}
	if r.At != "" {
		w, err := parseWall(r.At, time.Local)
		switch {
		case err != nil:
			return fmt.Errorf("at: %w", err)
		case w.month > 0 || w.weekday >= 0 || w.ahead >= 0:
			return fmt.Errorf("at: %q contains a date: want a time of day such as 00:00 America/Los_Angeles", r.At)
		case r.For != "":
			return errors.New("at: can't be used with for: give one of them")
		}
		r.at = &w
	}
	if r.For == "" {
		return nil
	}
	d, err := readDuration(r.For)
	if err != nil || d == 0 {
		return fmt.Errorf("for: %w", cmp.Or(err, errors.New("0 is too short")))
	}
	r.wait = d
	return nil
}

func checkLiterals(list []string, lower bool) error {
	if len(list) == 0 {
		return errors.New("literals are missing: only lines that contain one are matched")
	}
	return checkTexts("literals", list, lower)
}

func checkTexts(key string, list []string, lower bool) error {
	for i, l := range list {
		if len(l) < 3 {
			return fmt.Errorf("%s[%d]: %q is too short: want 3 characters or more", key, i, l)
		}
		if lower && l != strings.ToLower(l) {
			return fmt.Errorf("%s[%d]: %q is not in lower case", key, i, l)
		}
	}
	return nil
}
