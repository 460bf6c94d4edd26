package simulate

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/limit"
	"github.com/tideover/tideover/sim"
)

// Describe describes a scenario in sentences.
func Describe(s sim.Scenario) []string {
	if g := s.Group; g != nil {
		return []string{group(g)}
	}
	if w := s.Writers; w != nil {
		hop := textfmt.ShortDuration(w.Hop)
		if w.Sigma > 0 {
			hop += " +/- " + textfmt.ShortDuration(w.Sigma)
		}
		return []string{fmt.Sprintf("%s writers change one shared resource at the same time. %s; a message takes %s one way.",
			grouped(int64(w.Count)), conflict(w.Model), hop)}
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

// conflict says what happens if two writers conflict.
func conflict(m sim.WriterModel) string {
	switch m {
	case sim.Register:
		return "Each asks a quorum for a ballot, and starts again if a higher ballot comes first"
	case sim.Decree:
		return "They want one decision; each asks a quorum for a ballot, and starts again if a higher ballot comes first"
	default:
		return "Each reads it, writes it, and starts again if another was first"
	}
}

func group(g *sim.Group) string {
	text := fmt.Sprintf("%s members each propose one change of a replicated resource, and a quorum decides one at a time; a message takes %s on average one way.",
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
		text = fmt.Sprintf("%s start %s calls per second, independent of earlier calls, for %s.", who, number(c.Rate), textfmt.ShortDuration(s.Duration))
		text += loadChanges(c)
	case sim.Closed:
		text = fmt.Sprintf("%s call repeatedly for %s, with a pause of %s on average.", who, textfmt.ShortDuration(s.Duration), textfmt.ShortDuration(c.Think))
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

// loadChanges describes batches and changes of the rate.
func loadChanges(c sim.Clients) (text string) {
	if c.Batch > 1 {
		text += fmt.Sprintf(" %s calls arrive at a time.", grouped(int64(c.Batch)))
	}
	for _, l := range c.Load {
		text += fmt.Sprintf(" At %s the rate changes to %s times that", textfmt.ShortDuration(l.At), number(l.Factor))
		if l.Ramp > 0 {
			text += ", within " + textfmt.ShortDuration(l.Ramp)
		}
		text += "."
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
		if v.Capacity > 0 {
			text += fmt.Sprintf(", which serve %s calls per second,", number(v.Capacity))
		}
		if v.Queue > 0 {
			text += fmt.Sprintf(" and room for %s to wait", groupedPlural(v.Queue, "call"))
		} else {
			text += " and an unlimited queue"
		}
	}
	switch v.Order {
	case sim.LIFO:
		text += ", last in, first out"
	case sim.ByPriority:
		text += ", highest priority first"
	default: // first in, first out
	}
	text += "; a call takes " + textfmt.ShortDuration(v.Latency.Mean)
	if v.Latency.Distribution != sim.Constant {
		text += fmt.Sprintf(" on average (%s)", v.Latency.Distribution)
	}
	if v.Latency.Growth > 0 {
		text += fmt.Sprintf(", and %s more for each concurrent call", percent(v.Latency.Growth))
	}
	text += "."
	if l := v.Limit; l != nil {
		text += fmt.Sprintf(" It accepts %s calls per second", number(l.Rate))
		if l.Window > 0 {
			text += fmt.Sprintf(", counted in windows of %s", textfmt.ShortDuration(l.Window))
		}
		if l.RetryAfter != sim.SayNothing {
			text += " and sends Retry-After to the others"
		}
		text += "."
	}
	if v.Deadlines {
		text += " It drops calls whose client has given up."
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

// failureTime says when a failure happens.
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

// happens returns a description of what a failure does, as a format string with %s for the service.
func happens(f sim.Failure) string {
	part := strings.Replace(percent(f.Share), "%", "%%", 1)
	switch f.Kind {
	case sim.Outage:
		return "%s rejects every call"
	case sim.Errors:
		return part + " of the answers of %s are errors"
	case sim.Reject:
		return part + " of the calls to %s are rejected at once"
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

// failureLabel describes a failure in a legend.
func failureLabel(f sim.Failure) string {
	return fmt.Sprintf("%s, %s", f.Kind, strings.ToLower(failureTime(f)[:1])+failureTime(f)[1:])
}

func groupedPlural(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(int64(n)) + " " + one + "s"
}

// and joins words: a, b and c.
func and(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

// number formats a number from the scenario without rounding it.
func number(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) < 1e15 {
		return grouped(int64(f))
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// percent formats a share from the scenario.
func percent(f float64) string { return number(math.Round(f*1e11)/1e9) + "%" }
