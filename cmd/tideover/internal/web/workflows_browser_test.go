package web

import (
	"os"

	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/engine"
)

// schedule sets two schedules, of which one is paused.
func (g *fullSite) schedule() {
	g.Helper()
	err := g.e.SetSchedules(g.Context(), []engine.Schedule{{Name: "nightly", Workflow: "quick", Cron: "TZ=Europe/Berlin 0 3 * * *"}, {Name: "weekly", Workflow: "order", Cron: "@weekly"}})
	if err == nil {
		err = g.e.PauseSchedule(g.Context(), "weekly", "ann")
	}
	if err != nil {
		g.Fatal(err)
	}
}

// workflows starts a run by a form in a dialog, and pauses and resumes a schedule.
func (v visitor) workflows(g *fullSite) {
	g.busy()
	g.schedule()
	x := v.open(g.testSite)
	x.live("/workflows")
	x.click(`a[href="/workflows/quick/start"]`)
	x.seen("#dialog[open]", "Start quick")
	fail := chromedp.CSS(`#dialog input[name="input.fail"]`)
	x.Do(chromedp.SetValue(fail, "often"))
	x.click("#dialog button.go")
	x.seen("#dialog[open] .problem", "is not a number")
	x.Wait("the label belongs to the field", `[...document.querySelectorAll("#dialog input, #dialog textarea")].every(e => e.labels.length === 1)`)
	x.Do(chromedp.SetValue(fail, "1"))
	x.click("#dialog button.go")
	x.Wait("it is the page of the run", `location.pathname.startsWith("/runs/")`)
	x.seen("#flash", "Started.")
	x.live("/schedules")
	x.click(`a[href="/schedules/weekly/resume"]`)
	x.seen("#dialog[open]", "Resume weekly?")
	x.click("#dialog button.go")
	x.seen("#flash", "Resumed.")
	x.Wait("it is not paused", `!document.querySelector(".state.paused") && document.querySelector('a[href="/schedules/weekly/pause"]')`)
	x.ForgetComplaints("422") // the browser logs the answer to the wrong form
	x.EnableScripts(false)
	x.visit("/workflows/quick")
	x.click(`a[href="/workflows/quick/start"]`)
	x.click("form.start button")
	x.seen("#flash", "Started.")
	x.EnableScripts(true)
	x.quiet()
}

// workflowPictures checks the pages of workflows and schedules in several sizes, as pictures does.
func (v visitor) workflowPictures(g *fullSite) {
	dir := os.Getenv("TIDEOVER_PICTURES")
	g.busy()
	g.schedule()
	x := v.open(g.testSite)
	for name, path := range map[string]string{"workflows": "/workflows", "workflow": "/workflows/order", "workflow-runs": "/workflows/quick", "schedules": "/schedules", "start": "/workflows/quick/start"} {
		x.visit(path)
		if name == "workflows" || name == "schedules" {
			x.Resize(390, 844)
			x.Wait("the first row is near the top", `document.querySelector("tbody tr").getBoundingClientRect().top < 400`)
		}
		x.looksRight(dir, name)
	}
	x.quiet()
}
