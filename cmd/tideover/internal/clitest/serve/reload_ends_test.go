//go:build unix

package serve_test

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"
)

// checkRuns checks that each run that was accepted has succeeded or, if it had to fail, is dead.
func (u *reloadTest) checkRuns() {
	u.T.Helper()
	close(u.service.gate(fmt.Sprint("v", u.version)))
	for _, id := range u.runs {
		if _, err := u.client.Result(u.T.Context(), id); err != nil {
			u.T.Errorf("run %s: %v", id, err)
			continue
		}
		i, err := u.client.Get(u.T.Context(), id)
		if err != nil {
			u.T.Fatal(err)
		}
		u.checkSteps(i)
	}
	for _, id := range u.doomed {
		_, err := u.client.Result(u.T.Context(), id)
		if p, ok := errors.AsType[*control.Error](err); !ok || p.Outcome == nil || p.Outcome.State != "dead" {
			u.T.Errorf("run %s of doomed: %v", id, err)
		}
	}
	testwait.Until(u.T, "there is a message for each run that gave up", func() bool { return len(u.notifications()) >= len(u.doomed) })
	for id, n := range u.notifications() {
		if n != 1 {
			u.T.Errorf("%d messages that run %s gave up", n, id)
		}
	}
	u.service.with(func() {
		if n := u.passed.Load(); int64(u.service.served) != n {
			u.T.Errorf("%d requests were served for %d that were answered", u.service.served, n)
		}
	})
	u.T.Logf("%d requests passed, %d runs succeeded", u.passed.Load(), len(u.runs))
	u.checkOthers()
}

// notifications returns the number of messages about each run that gave up.
func (u *reloadTest) notifications() (times map[string]int) {
	u.service.with(func() { times = maps.Clone(u.service.told) })
	return times
}

// checkSteps checks that a run has completed each step of the definition that it was started with,
// once.
func (u *reloadTest) checkSteps(i *engine.Info) {
	u.T.Helper()
	if i.Workflow == "many" {
		return // a flow: its operations are not its steps
	}
	version := ""
	for k := range i.Steps {
		s := &i.Steps[k]
		if i.Workflow == "pack" && s.Name == "one" {
			continue // a command, whose output the next step sends
		}
		sent := u.service.did(i.ID, s.Name)
		if len(sent) != 1 || version != "" && sent[0] != version {
			u.T.Errorf("run %s of %s, step %s: was done with %q, and the one before with %q", i.ID, i.Workflow, s.Name, sent, version)
			return
		}
		version = sent[0]
	}
	n := 0
	if _, err := fmt.Sscanf(version, "v%d", &n); err != nil {
		u.T.Errorf("run %s of %s sent %q", i.ID, i.Workflow, version)
	}
	want := 2
	if i.Workflow == "ping" {
		want += n % 2
	}
	if len(i.Steps) != want {
		u.T.Errorf("run %s of %s, version %d: %d steps, want %d", i.ID, i.Workflow, n, len(i.Steps), want)
	}
	for k := range i.Steps {
		clitest.WantIn(u.T, "policy of run "+i.ID, i.Steps[k].Policy, fmt.Sprint("attempts=", 20+n))
	}
}

// checkOthers checks that the schedule and the session of the configuration continue. The reloads
// must not have restarted the session.
func (u *reloadTest) checkOthers() {
	u.T.Helper()
	var ticks engine.Page
	testwait.Until(u.T, "the schedule has started something", func() bool {
		var err error
		ticks, err = u.client.List(u.T.Context(), control.Filter{Workflow: "tick", States: []string{"succeeded"}, Limit: 100})
		if err != nil {
			u.T.Fatal(err)
		}
		return len(ticks.Runs) > 1
	})
	for i := range ticks.Runs {
		if sent := u.service.did(ticks.Runs[i].ID, "one"); len(sent) != 1 {
			u.T.Errorf("tick %s was done %d times", ticks.Runs[i].ID, len(sent))
		}
	}
	s, err := u.client.Session(u.T.Context(), "night")
	if err != nil || s.State != "running" || s.Commands != 1 {
		u.T.Errorf("the session is %s after %d commands, %v", s.State, s.Commands, err)
	}
	if n := clitest.CountLines(filepath.Join(u.Folder, "night")); n != 1 {
		u.T.Errorf("the session began %d times", n)
	}
	for _, w := range u.status().Workflows {
		if n := w.States["dead"]; n > 0 && w.Name != "doomed" {
			u.T.Errorf("%d runs of %s are dead", n, w.Name)
		}
		if n := w.Totals.Canceled + w.Totals.Lost; n > 0 {
			u.T.Errorf("%d attempts or runs of %s were canceled or lost", n, w.Name)
		}
	}
	if strings.Contains(u.Log.String(), "level=ERROR msg=\"not all sessions") {
		u.T.Error("sessions did not begin")
	}
}

func (u *reloadTest) status() admin.Status {
	u.T.Helper()
	st, err := u.client.Status(u.T.Context())
	if err != nil {
		u.T.Fatal(err)
	}
	return st
}

func (u *reloadTest) workflows() (names []string) {
	u.T.Helper()
	list, err := u.client.Workflows(u.T.Context())
	if err != nil {
		u.T.Fatal(err)
	}
	for _, w := range list.Workflows {
		names = append(names, w.Name)
	}
	return names
}

// health returns the health page.
func (u *reloadTest) health() string {
	u.T.Helper()
	req, err := http.NewRequestWithContext(u.T.Context(), http.MethodGet, u.Address()+"health", nil)
	if err != nil {
		u.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+u.token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		u.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		u.T.Fatalf("/health: %s, %v", resp.Status, err)
	}
	return string(text)
}
