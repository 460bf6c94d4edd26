package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tideover/tideover/internal/lazyregexp"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/limit"
)

// Upper limits of concurrent= and rate=, because the server keeps a record in memory of
// each request that counts for them.
const (
	maxConcurrent = 1_000_000
	maxRate       = 100_000
)

// keys returns the keys of a rule that have a value, in the order in which
// [Rule.String] writes them.
func keys() []field[Rule] {
	return []field[Rule]{
		fieldOf("per", func(r *Rule) *string { return &r.Per }, parsePer, asIs),
		fieldOf("delay", func(r *Rule) *Delay { return &r.Delay }, parseDelay, Delay.String),
		fieldOf("body", func(r *Rule) *Body { return &r.Body }, parseBody, Body.String),
		fieldOf("concurrent", func(r *Rule) *int { return &r.Concurrent }, countUpTo(maxConcurrent), strconv.Itoa),
		fieldOf("rate", func(r *Rule) *limit.Frequency { return &r.Rate }, limit.ParseRate, limit.Frequency.String),
		fieldOf("service", func(r *Rule) *Service { return &r.Service }, positive(parseService), Service.String),
		{name: "over", set: setOver, get: overText},
	}
}

func setOver(r *Rule, v string) (err error) {
	r.Over, err = parseAnswer(v)
	return err
}

func overText(r *Rule) string {
	if r.Over.zero() {
		return ""
	}
	return r.Over.String()
}

var headerForm = lazyregexp.New(`^[a-z0-9-]{1,64}$`)

func parsePer(v string) (string, error) {
	name := strings.ToLower(v)
	if !headerForm.MatchString(name) {
		return "", fmt.Errorf("%q is not the name of a header", v)
	}
	return name, nil
}

// ParseRule reads one rule of a spec: an optional match that ends with a colon, and words
// such as 503,200 or delay=50ms. An error quotes the invalid word.
func ParseRule(text string) (r Rule, err error) {
	parts, err := split(text, func(rest string) bool {
		return rest[0] == ':' && (len(rest) == 1 || strings.IndexByte(" \t\r\n", rest[1]) >= 0)
	})
	if err != nil {
		return r, err
	}
	rest := text
	if len(parts) > 1 {
		if r.Match, err = parseMatch(parts[0]); err != nil {
			return r, err
		}
		rest = text[len(parts[0])+1:]
	}
	list, err := words(rest)
	if err != nil {
		return r, err
	}
	seen := map[string]bool{}
	for len(list) > 0 {
		if list, err = r.readWord(list, seen); err != nil {
			return r, err
		}
	}
	if len(r.Script) == 0 {
		r.Script = []Step{{Answer{Status: 200}, 1}}
	}
	return r, nil
}

// readWord reads the first word and the words that belong to it, and returns the others.
// seen has the keys that were read before.
func (r *Rule) readWord(list []string, seen map[string]bool) ([]string, error) {
	word := list[0]
	name, value, valued := cutWord(word)
	switch {
	case word == "down":
		o, rest, err := parseOutage(list[1:])
		r.Down = append(r.Down, o)
		return rest, err
	case valued && !slices.Contains(keyNames(), name):
		return list[1:], r.chance(name, value, word)
	case word != "cycle" && !valued:
		name = "script"
	}
	if seen[name] {
		return nil, fmt.Errorf("%q: %s is already set; a script is one word, with commas between the answers", word, name)
	}
	seen[name] = true
	return list[1:], r.set(name, cmp.Or(value, word))
}

// RuleKeys returns the names of all keys that [Rule.With] accepts.
func RuleKeys() []string {
	return slices.Concat([]string{"match", "script", "cycle"}, keyNames(), []string{"random", "down"})
}

// With returns the rule with one key set from its text. It is for files in which a rule is
// a map. The keys random and down add to the random answers and outages
// that the rule has. With does not validate the rule as a whole; [Spec.Validate] does.
func (r Rule) With(key, value string) (_ Rule, err error) {
	switch {
	case key == "match":
		r.Match, err = parseMatch(value)
	case key == "cycle":
		if r.Cycle, err = strconv.ParseBool(value); err != nil {
			err = fmt.Errorf("cycle: %q is not true or false", value)
		}
	case key == "random":
		answer, share, ok := cutWord(value)
		if !ok {
			return r, fmt.Errorf("random: %q is not an answer with its share, such as fail=20%%", value)
		}
		r.Random = slices.Clone(r.Random)
		err = r.chance(answer, share, value)
	case key == "down":
		err = r.addOutage(value)
	case key == "script" || slices.Contains(keyNames(), key):
		err = r.set(key, value)
	default:
		names := RuleKeys()
		last := len(names) - 1
		err = fmt.Errorf("key %q is unknown; want %s or %s", key, strings.Join(names[:last], ", "), names[last])
	}
	return r, err
}

// addOutage adds the outage in the text.
func (r *Rule) addOutage(text string) error {
	list, err := words(text)
	if err != nil {
		return err
	}
	o, rest, err := parseOutage(list)
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("down: unexpected %q after the outage", rest[0])
	}
	r.Down = append(slices.Clip(r.Down), o)
	return nil
}

// set sets a key, including script and cycle.
func (r *Rule) set(name, value string) (err error) {
	switch name {
	case "cycle":
		r.Cycle = true
		return nil
	case "script":
		r.Script, err = parseScript(value)
		return err
	}
	for _, k := range keys() {
		if k.name == name {
			err = k.set(r, value)
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// chance adds a random answer. name is the answer, value its share, and word both.
func (r *Rule) chance(name, value, word string) error {
	a, err := parseAnswer(name)
	if err != nil {
		if strings.Contains(name, "(") { // a key has no parenthesis
			return err
		}
		return fmt.Errorf("%q: %q is neither a key nor an answer; want one of %s, or the share of an answer such as fail=20%% or 429(retry-after=2)=5%%",
			word, name, strings.Join(keyNames(), ", "))
	}
	percent, err := parsePercent(value)
	if err != nil {
		return fmt.Errorf("%q: %w", word, err)
	}
	r.Random = append(r.Random, Chance{a, percent})
	return nil
}

func keyNames() []string { return namesOf(keys()) }

// parseScript reads answers that are separated by commas.
func parseScript(word string) (steps []Step, err error) {
	parts, err := split(word, at(","))
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		if part == "" {
			return nil, fmt.Errorf("%q has a comma without an answer", word)
		}
		s, err := parseStep(part)
		if err != nil {
			return nil, err
		}
		steps = append(steps, s)
	}
	return steps, nil
}

func (r *Rule) script() string {
	var list []string
	for _, s := range r.Script {
		list = append(list, s.String())
	}
	return strings.Join(list, ",")
}

// words returns the words of the rule in its text form, without the match.
func (r *Rule) words() (list []string) {
	if r.Cycle {
		list = append(list, "cycle")
	}
	for _, k := range keys() {
		if v := k.get(r); v != "" {
			list = append(list, k.name+"="+v)
		}
	}
	for _, c := range r.Random {
		list = append(list, c.String())
	}
	for _, o := range r.Down {
		list = append(list, "down "+o.String())
	}
	if script := cmp.Or(r.script(), "200"); script != "200" || len(list) == 0 {
		list = slices.Insert(list, 0, script)
	}
	return list
}

// String returns the text form of the random answer.
func (c Chance) String() string { return c.Answer.String() + "=" + textfmt.FormatPercent(c.Percent) }

// String returns the text form of the rule.
func (r Rule) String() string { return r.Match.String() + ": " + strings.Join(r.words(), " ") }

// problems returns an error for each combination of words that is not allowed. Parsing has
// already checked each word alone.
func (r *Rule) problems() (list []error) {
	bad := func(when bool, format string, args ...any) {
		if when {
			list = append(list, fmt.Errorf(format, args...))
		}
	}
	check := func(a *Answer, room, whole bool) {
		for _, err := range a.problems() {
			list = append(list, fmt.Errorf("%q: %w", a.String(), err))
		}
		bad(!room && a.usesDue(), "%q: due can be used only in over= and down; here, state a time", a.String())
		bad(!whole && a.Act == Refuse, "%q: refuse can be used only in down of a rule for all requests, because it closes the port; for some requests, use reset", a.String())
	}
	for _, s := range r.Script {
		check(&s.Answer, false, false)
	}
	total := 0.0
	for _, c := range r.Random {
		check(&c.Answer, false, false)
		total += c.Percent
	}
	bad(total > 100+1e-9, "the shares add up to %s, which is above 100%%", textfmt.FormatPercent(total))
	for _, o := range r.Down {
		check(&o.As, true, r.Match == Match{})
	}
	limited := r.Concurrent != 0 || r.Rate != limit.Frequency{}
	bad(!r.Over.zero() && !limited, "over= requires concurrent= or rate=")
	bad(r.Rate.Events > maxRate, "rate: %d requests are too many; at most %d", r.Rate.Events, maxRate)
	bad(limited && r.Rate.Per > maxDuration, "rate: the period is longer than %s", textfmt.PolicyDuration(maxDuration))
	if !r.Over.zero() {
		check(&r.Over, true, false)
	}
	return list
}

// quote quotes a text for an error, shortened if it is long.
func quote(text string) string {
	if len(text) > 80 {
		text = textfmt.TruncateValid(text, 77, "...")
	}
	return strconv.Quote(text)
}
