package detect

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// macros are what words in braces stand for in the pattern of a line.
var macros = strings.NewReplacer(
	// How a message begins: at the start of its line, after a time stamp and the
	// words that mark an error, or as the text of an error in JSON.
	"{lead}", `^(?:\[?\d{4}-\d\d-\d\d[t ][\d:.,z+-]+\]? )?`+
		`(?:\[?(?:[a-z_-]+ )?[\w.]*(?:error|exception|fatal)\]?(?:: ?| \(?\d{3}\)?:? ?)|\\?"(?:message|error|detail)\\?": ?\\?"){0,3}`+
		`(?:\(?\d{3}\)? ?[:·-]? ?)?`,
	"{end}", `[.!"'\\,;\])}]*$`,
	"{limit}", `(?:too many requests|rate[ _-]?limit(?:ed| exceeded| reached| hit| error))`,
	"{duration}", `(?P<duration>(?:`+durationPart+`,?(?: and)? ?)+)`,
	"{moment}", `(?P<moment>`+momentText+`)`,
	"{epoch}", `(?P<epoch>\d{10}(?:\d{3})?)\b`,
	"{seconds}", `(?P<seconds>\d+(?:\.\d+)?)`,
)

// rule is a [Rule] that can be used.
type rule struct {
	Rule
	pack    string
	trust   Trust
	pattern *regexp.Regexp // nil for an event
	groups  []string       // the form of each group of the pattern, "" for none
	event   condition
	until   []fieldAt
	wait    time.Duration // of For
}

type fieldAt struct {
	path path
	as   string
}

// compileRule checks a rule. The errors name its fields.
func compileRule(pack string, spec Rule) (*rule, error) {
	r := &rule{Rule: spec, pack: pack}
	errs := []error{r.checkKind(), r.checkVerdict()}
	var err error
	switch {
	case spec.Line != "":
		r.trust, err = ByLine, r.compileLine(macros.Replace(spec.Line))
	case spec.Header != "":
		r.trust, err = ByHeader, r.compileHeader()
	default:
		r.trust = ByEvent
		r.event, err = compileCondition(spec.Event)
	}
	return r, errors.Join(append(errs, err, r.compileUntil(), checkLiterals(r.Literals, spec.Line != ""))...)
}

func (r *rule) checkKind() error {
	kinds := 0
	for _, given := range []bool{len(r.Event) > 0, r.Header != "", r.Line != ""} {
		if given {
			kinds++
		}
	}
	if kinds != 1 {
		return fmt.Errorf("%d of event, header and line are given, want one", kinds)
	}
	if len(r.Until) > 0 && len(r.Event) == 0 {
		return errors.New("until: only an event has fields; a line has groups such as {duration}")
	}
	return nil
}

func (r *rule) checkVerdict() error {
	switch r.Reason {
	case RateLimit, ContextFull, Terminal, Overloaded:
	case Unknown:
		if !r.Alive {
			return errors.New("reason: missing")
		}
	default:
		return fmt.Errorf("reason: %s is not for a rule: the exit code says it", r.Reason)
	}
	if r.Alive && (r.Terminal || r.Reason == Terminal) {
		return errors.New("alive: a program that goes on has not stopped for good")
	}
	r.Terminal = r.Terminal || r.Reason == Terminal
	if r.Terminal && (r.For != "" || len(r.Until) > 0) {
		return errors.New("terminal: there is nothing to wait for, but for or until is given")
	}
	return nil
}

func (r *rule) compileLine(pattern string) (err error) {
	if r.pattern, err = regexp.Compile("(?i)" + pattern); err != nil {
		return fmt.Errorf("line: %w", err)
	}
	for _, name := range r.pattern.SubexpNames() {
		as := strings.ReplaceAll(name, "_", "-")
		if as != "" && forms[as] == nil {
			return fmt.Errorf("line: the group %q is not a form of time; want one of %s", name, formNames())
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
			return fmt.Errorf("until[%d].as: %q is unknown; want one of %s", i, f.As, formNames())
		}
		r.until = append(r.until, fieldAt{p, f.As})
	}
	if r.For == "" {
		return nil
	}
	d, err := readDuration(r.For)
	if err != nil || d == 0 {
		return fmt.Errorf("for: %w", cmp.Or(err, errors.New("0 is no wait")))
	}
	r.wait = d
	return nil
}

func checkLiterals(list []string, lower bool) error {
	if len(list) == 0 {
		return errors.New("literals: missing; a line that has none of them is not looked at")
	}
	for i, l := range list {
		if len(l) < 3 {
			return fmt.Errorf("literals[%d]: %q is in too many lines; want 3 characters or more", i, l)
		}
		if lower && l != strings.ToLower(l) {
			return fmt.Errorf("literals[%d]: %q is not in lower case", i, l)
		}
	}
	return nil
}

// near reports whether the line, in lower case, has a literal of the rule.
func (r *rule) near(lower string) bool {
	for _, l := range r.Literals {
		if strings.Contains(lower, l) {
			return true
		}
	}
	return false
}

// matchLine matches a line that has a literal.
func (r *rule) matchLine(line string, at time.Time, zone *time.Location) (reading, bool) {
	m := r.pattern.FindStringSubmatch(line)
	if m == nil {
		return reading{}, false
	}
	var got reading
	for i, as := range r.groups {
		if as != "" && m[i] != "" && got.until.IsZero() {
			got = read(m[i], as, at, zone)
		}
	}
	return r.orWait(got, at), true
}

// matchEvent matches an event.
func (r *rule) matchEvent(event any, at time.Time, zone *time.Location) (reading, bool) {
	if r.event.fails(event) != "" {
		return reading{}, false
	}
	var got reading
	for _, f := range r.until {
		f.path.visit(event, func(v any) bool {
			if text, ok := scalar(v); ok {
				got = read(text, f.as, at, zone)
			}
			return got.until.IsZero()
		})
		if !got.until.IsZero() {
			break
		}
	}
	return r.orWait(got, at), true
}

// orWait gives the rule's own wait to a reading that found none.
func (r *rule) orWait(got reading, at time.Time) reading {
	if got.until.IsZero() && r.wait > 0 {
		got.until, got.stated, got.as = at.Add(r.wait), r.For, "rule"
	}
	if r.Terminal || r.Alive {
		got = reading{}
	}
	return got
}
