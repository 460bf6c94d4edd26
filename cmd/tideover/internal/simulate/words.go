package simulate

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/sim"
)

// Describe returns sentences on what happens in a scenario.
func Describe(s sim.Scenario) []string {
	if g := s.Group; g != nil {
		return []string{group(g)}
	}
	if w := s.Writers; w != nil {
		hop := textfmt.ShortDuration(w.Hop)
		if w.Sigma > 0 {
			hop += ", give or take " + textfmt.ShortDuration(w.Sigma)
		}
		return []string{fmt.Sprintf("%s writers change one thing at the same moment. Each reads it, writes it, and begins again when another was first; a message takes %s one way.",
			grouped(int64(w.Count)), hop)}
	}
	list := []string{arrivals(s)}
	for _, v := range s.Services {
		list = append(list, service(v))
	}
	for _, f := range s.Failures {
		list = append(list, failure(f, s))
	}
	return list
}

func group(g *sim.Group) string {
	text := fmt.Sprintf("%s members each want one change of a replicated thing, of which a quorum decides one at a time; a message takes %s on average one way.",
		grouped(int64(g.Members)), textfmt.ShortDuration(g.Hop))
	if g.Behind > 0 {
		text += fmt.Sprintf(" They have missed %s.", groupedPlural(g.Behind, "decision"))
	}
	return text
}

func arrivals(s sim.Scenario) string {
	c := s.Clients
	who := grouped(int64(c.Count)) + " clients"
	if c.Sharing > 1 {
		who += fmt.Sprintf(", %s to a process,", grouped(int64(c.Sharing)))
	}
	var text string
	switch c.Arrivals {
	case sim.Open:
		text = fmt.Sprintf("%s begin %s calls per second, however the earlier ones fare, for %s.", who, number(c.Rate), textfmt.ShortDuration(s.Duration))
	case sim.Closed:
		text = fmt.Sprintf("%s call again and again for %s, with a pause of %s on average.", who, textfmt.ShortDuration(s.Duration), textfmt.ShortDuration(c.Think))
	default:
		text = fmt.Sprintf("%s call once each, %s.", who, within(c))
	}
	if len(c.Fallback) > 0 {
		text += " Retries go to " + and(c.Fallback) + " in turn."
	}
	if c.Priorities != [limit.Classes]float64{} {
		var shares []string
		for _, p := range c.Priorities {
			shares = append(shares, percent(p))
		}
		text += " From the lowest class to the highest, they are " + and(shares) + " of the calls."
	}
	return text
}

func within(c sim.Clients) string {
	text := "all at once"
	if c.Spread > 0 {
		text = "all within " + textfmt.ShortDuration(c.Spread)
	}
	if c.Start > 0 {
		text += ", from " + textfmt.ShortDuration(c.Start) + " on"
	}
	return text
}

func service(v sim.Service) string {
	text := v.Name + " takes any number of calls at once"
	if v.Workers > 0 {
		text = v.Name + " has " + groupedPlural(v.Workers, "worker")
		switch {
		case v.Queue > 0:
			text += fmt.Sprintf(" and room for %s to wait", groupedPlural(v.Queue, "call"))
		default:
			text += " and a queue without end"
		}
	}
	switch v.Order {
	case sim.LIFO:
		text += ", last come first served"
	case sim.ByPriority:
		text += ", the most important served first"
	default: // as everybody expects
	}
	text += "; a call takes it " + textfmt.ShortDuration(v.Latency.Mean)
	if v.Latency.Distribution != sim.Constant {
		text += fmt.Sprintf(" on average (%s)", v.Latency.Distribution)
	}
	if v.Latency.Growth > 0 {
		text += fmt.Sprintf(", and %s more for every other one", percent(v.Latency.Growth))
	}
	text += "."
	if l := v.Limit; l != nil {
		text += fmt.Sprintf(" It lets %s calls per second in", number(l.Rate))
		if l.RetryAfter != sim.SayNothing {
			text += ", and tells the others when to come back"
		}
		text += "."
	}
	if v.Deadlines {
		text += " It drops calls that nobody waits for any more."
	}
	if v.Calls != "" {
		text += " Each call needs " + v.Calls + "."
	}
	return text
}

func failure(f sim.Failure, s sim.Scenario) string {
	name := f.Service
	if name == "" && len(s.Services) > 0 {
		name = s.Services[0].Name
	}
	return fmt.Sprintf("%s, %s.", failureTime(f), fmt.Sprintf(happens(f), name))
}

// span is when a failure happens.
func failureTime(f sim.Failure) string {
	switch {
	case f.Until == 0 && f.From == 0:
		return "All the time"
	case f.Until == 0:
		return "From " + textfmt.ShortDuration(f.From) + " on"
	default:
		return fmt.Sprintf("From %s to %s", textfmt.ShortDuration(f.From), textfmt.ShortDuration(f.Until))
	}
}

// happens is what a failure does, with a place for the service's name.
func happens(f sim.Failure) string {
	part := strings.Replace(percent(f.Share), "%", "%%", 1)
	switch f.Kind {
	case sim.Outage:
		return "%s refuses every call"
	case sim.Errors:
		return part + " of the answers of %s are errors"
	case sim.BlackHole:
		return part + " of the calls to %s are never answered"
	case sim.Slow:
		return part + " of the work of %s takes " + number(f.Factor) + " times as long"
	default:
		if f.Share == 0 {
			return "%s has no worker left"
		}
		return "%s has " + part + " of its workers left"
	}
}

// short names a failure in a legend.
func failureLabel(f sim.Failure) string {
	return fmt.Sprintf("%s, %s", f.Kind, strings.ToLower(failureTime(f)[:1])+failureTime(f)[1:])
}

// until returns when a failure ends.
func (v *View) until(f sim.Failure) time.Duration {
	if f.Until == 0 {
		return v.length()
	}
	return f.Until
}

func groupedPlural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(int64(n)) + " " + one + "s"
}

// and lists things: a, b and c.
func and(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

// number writes a number that somebody chose, as it was written.
func number(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return grouped(int64(f))
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// percent writes a share that somebody chose.
func percent(f float64) string { return number(math.Round(f*1e11)/1e9) + "%" }
