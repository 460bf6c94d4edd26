package describe

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/info"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/view"
)

// Row returns the run as it is written to the view.
func Row(r *machine.Run) view.Run {
	v := view.Run{
		ID: r.ID.String(), Workflow: r.Def.Name, Key: r.Key, State: r.State().String(),
		Created: time.Unix(0, r.Created), Ended: moment(r.Ended), Next: moment(r.Next()),
		Attempts: r.Attempts(), Input: r.Input, ReplacedBy: r.ReplacedBy().String(),
	}
	if r.Outcome == machine.Dead {
		v.Reason = r.Reason.String()
	}
	v.Step, v.Error, v.Updated = machine.Situation(r)
	v.Status, v.Tags = r.Flow().Status(), machine.DecodeTags(r.Flow().Tags())
	if machine.Asks(r) {
		if v.Tags == nil {
			v.Tags = map[string]string{}
		}
		v.Tags[AskingName] = "open"
	}
	if out := r.Result(); len(out) <= preview {
		v.Output = out
	}
	if r.Finished() { // the details of other runs are read from memory
		v.Detail = machine.EncodeWithout(r, nil)
	}
	return v
}

const preview = 256

// AskingName is the name of the tag, in the view, of runs that wait for the answer to a question. No
// function can set it.
const AskingName = "?"

var asking = view.Tag(AskingName, "open")

// tagsOf returns the tags that the runs must have.
func tagsOf(f *info.Filter) []string {
	if !f.Asking {
		return f.Tags
	}
	return append(slices.Clone(f.Tags), asking)
}

// ViewFilter returns the filter for the view.
func ViewFilter(f *info.Filter) view.Filter {
	return view.Filter{
		States: f.States, Workflow: f.Workflow, Exclude: f.Exclude, Search: f.Search, Error: f.ErrorLike, Since: f.Since, Until: f.Until,
		MinAttempts: f.MinAttempts, Tags: tagsOf(f), After: f.After, Limit: f.Limit,
		Order: view.Order(f.Order),
	}
}

// Matches reports whether a run passes the filter. It is for engines without a view.
func Matches(f *info.Filter, r *view.Run) bool {
	return (len(f.States) == 0 || slices.Contains(f.States, r.State)) && (f.Workflow == "" || f.Workflow == r.Workflow) &&
		!view.Like(f.Exclude, r.Workflow) && r.Attempts >= f.MinAttempts && (f.Since.IsZero() || !r.Created.Before(f.Since)) && (f.Until.IsZero() || r.Created.Before(f.Until)) &&
		!slices.ContainsFunc(tagsOf(f), func(tag string) bool { return !hasTag(r, tag) }) &&
		(f.Search == "" || strings.Contains(searchText(r), f.Search))
}

// hasTag reports whether the run has a tag, written as name=value.
func hasTag(r *view.Run, tag string) bool {
	name, _, _ := strings.Cut(tag, "=")
	got, ok := r.Tags[name]
	return ok && view.Tag(name, got) == tag
}

// searchText returns the texts in which a search looks.
func searchText(r *view.Run) string {
	texts := []string{r.ID, r.Key, r.Workflow, r.Error, r.Status, string(r.Input)}
	return strings.Join(slices.AppendSeq(texts, maps.Values(r.Tags)), "\n")
}

// Summary returns a run as it is shown in lists.
func Summary(r *view.Run) info.Info {
	i := info.Info{
		ID: r.ID, Workflow: r.Workflow, Key: r.Key, State: r.State, Created: r.Created, Updated: r.Updated,
		Ended: nonZero(r.Ended), Next: nonZero(r.Next), Attempts: r.Attempts,
		Step: r.Step, Error: r.Error, Reason: r.Reason, ReplacedBy: r.ReplacedBy,
		InputPreview: string(r.Input), OutputPreview: string(r.Output), Status: r.Status, Tags: r.Tags,
	}
	if _, i.Asking = r.Tags[AskingName]; i.Asking {
		i.Tags = maps.Clone(r.Tags)
		delete(i.Tags, AskingName)
	}
	setContinued(&i)
	return i
}
