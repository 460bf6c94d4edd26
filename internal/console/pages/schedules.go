package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// schedulesPage shows the schedules.
type schedulesPage struct{ *Data }

// schedulesBody is the content of the page with the list of schedules.
type schedulesBody struct {
	Rows    []scheduleRow
	Missing string // why the schedules are unknown
}

// scheduleRow is a schedule in a list.
type scheduleRow struct {
	engine.Schedule
	ID          string // of the HTML element
	WorkflowURL string
	Last        *Row // its newest run, if that is one of the last runs of the workflow
	Offers      []Offer
}

// scheduleTexts has the sentence that is shown after each action on a schedule.
var scheduleTexts = map[string]string{"pause": "Paused. The schedule starts no run until it is resumed.", "resume": "Resumed."}

func scheduleURL(name string) string { return "/schedules/" + url.PathEscape(name) }

func (h schedulesPage) load(ctx context.Context, now time.Time) (Part, error) {
	var b schedulesBody
	soon, cancel := h.Soon(ctx)
	defer cancel()
	list, err := h.control.Schedules.List(soon)
	if err == nil {
		b.Rows, err = h.rows(ctx, list)
	}
	switch {
	case err != nil && control.AsError(err).Status == http.StatusServiceUnavailable: // their shard does not answer
		b.Missing = h.Redact(err.Error())
	case err != nil:
		return Part{}, err
	}
	return Part{
		Template: "schedules", Moving: true,
		Data: Page{Title: "Schedules", Place: "schedules", Live: "/live/schedules", Now: now, Dead: h.DeadCount(ctx), Body: b},
	}, nil
}

// rows returns the rows of schedules, by their next start.
func (h schedulesPage) rows(ctx context.Context, list []engine.Schedule) ([]scheduleRow, error) {
	last, err := lastRuns(list, func(workflow string) ([]Row, error) {
		rows, _, err := h.List(ctx, control.Filter{Workflow: workflow, Limit: RowsPerPage})
		return rows, err
	})
	if err != nil {
		return nil, err
	}
	readOnly := CallerOf(ctx).ReadOnly
	rows := make([]scheduleRow, len(list))
	for i, s := range list {
		s.Refused = ChangedCopy(s.Refused, func(r *engine.RefusedStart) { r.Error = h.Redact(r.Error) })
		rows[i] = scheduleRow{Schedule: s, ID: "sc-" + Hash(s.Name, 6), WorkflowURL: WorkflowURL(s.Workflow), Last: last[s.Name]}
		if !readOnly {
			rows[i].Offers = scheduleOffers(&s)
		}
	}
	slices.SortFunc(rows, byNext)
	return rows, nil
}

// lastRuns returns the newest run that each schedule has started, by the name of the schedule. It has
// only runs that are among the last runs of their workflow. It calls read once for each workflow.
func lastRuns(list []engine.Schedule, read func(workflow string) ([]Row, error)) (map[string]*Row, error) {
	newest, byWorkflow := map[string]*Row{}, map[string][]Row{}
	for _, s := range list {
		rows, known := byWorkflow[s.Workflow]
		if !known {
			var err error
			if rows, err = read(s.Workflow); err != nil {
				return nil, err
			}
			byWorkflow[s.Workflow] = rows
		}
		if i := slices.IndexFunc(rows, func(r Row) bool { return strings.HasPrefix(r.Key, "schedule/"+s.Name+"/") }); i >= 0 {
			newest[s.Name] = &rows[i]
		}
	}
	return newest, nil
}

func scheduleOffers(s *engine.Schedule) (list []Offer) {
	add := func(name, label string) {
		list = append(list, Offer{Name: name, Label: label, URL: ActionURL(scheduleURL(s.Name), name)})
	}
	if control.Startable(s.Workflow) == nil {
		add("run", "Run now")
	}
	if s.Paused != nil {
		add("resume", "Resume")
	} else {
		add("pause", "Pause")
	}
	return list
}

// question returns the confirmation question for an action on a schedule.
func (h schedulesPage) question(r *http.Request) (*Question, error) {
	action := r.PathValue("action")
	s, err := h.control.Schedules.Get(r.Context(), r.PathValue("schedule"))
	if err != nil {
		return nil, err
	}
	q := &Question{Action: ActionURL(scheduleURL(s.Name), action), Back: "/schedules"}
	switch action {
	case "run":
		q.Title, q.Button = "Run schedule "+s.Name+" now?", "Run now"
		q.Text = fmt.Sprintf("A run of workflow %s starts now, with the input of the schedule. The next start of the schedule does not change.", s.Workflow)
	case "pause":
		q.Title, q.Button = "Pause schedule "+s.Name+"?", "Pause"
		q.Text = "The schedule starts no run until it is resumed, also after a restart. Runs that it has started continue."
	case "resume":
		q.Title, q.Button = "Resume schedule "+s.Name+"?", "Resume"
		q.Text = "The next run starts at the next time of the schedule. Starts that it missed while it was paused are not made up for."
	default:
		return nil, UnknownAction(action)
	}
	return q, nil
}

// act applies an action to a schedule.
func (h schedulesPage) act(r *http.Request) (did, to string, err error) {
	ctx, name, by, action := r.Context(), r.PathValue("schedule"), ActorOf(r), r.PathValue("action")
	switch action {
	case "run":
		run, err := h.control.Schedules.Run(ctx, name, by)
		return "", RunURL(run.ID) + "?did=start", err
	case "pause":
		err = h.control.Schedules.Pause(ctx, name, by)
	case "resume":
		err = h.control.Schedules.Resume(ctx, name, by)
	default:
		err = UnknownAction(action)
	}
	h.feed.touchAll()
	return scheduleTexts[action], "/schedules?did=" + action, err
}
