package web

import (
	"os"

	"github.com/chromedp/chromedp"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
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
	x.seen("#dialog[open]", "Resume schedule weekly?")
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

// chooses changes the runs that the user has chosen, after the list was updated.
func (v visitor) chooses(b *testSite) {
	ids := b.dead(2, job{Error: "418"})
	x := v.open(b)
	x.live("/dead")
	x.click("#choose-" + ids[0])
	b.dead(1, job{Error: "418"})
	x.seen("#said", "3 runs have given up")
	x.Wait("it is still chosen", `[...document.querySelectorAll("input[form=chosen]")].filter(e => e.checked).map(e => e.value).join() === "`+ids[0]+`"`)
	x.click("#choose-all")
	x.Wait("all are chosen", `[...document.querySelectorAll("input[form=chosen]")].every(e => e.checked)`)
	x.click("#choose-all")
	x.Wait("none is chosen", `[...document.querySelectorAll("input[form=chosen]")].every(e => !e.checked)`)
	x.click("#choose-" + ids[0])
	x.click(`#chosen button[value="cancel"]`)
	x.seen("h1", "Cancel 1 run?")
	x.click("form.question button.danger")
	x.seen("#flash", "1 canceled.")
	x.seen("#said", "2 runs have given up")
	x.click(`#groups a.danger`)
	x.click("#dialog button.danger")
	x.seen("#said", "No run has given up")
	x.quiet()
}

// theme chooses a theme and a clock.
func (v visitor) theme(b *testSite) {
	x := v.open(b)
	x.SetColorScheme("light")
	id := b.start("quick", job{})
	b.until(id, "succeeded")
	x.live("/runs/" + id)
	ground := `getComputedStyle(document.body).backgroundColor === `
	x.Wait("it is light", ground+`"rgb(251, 252, 252)"`)
	x.click(`footer a[href*="theme=dark"]`)
	x.Wait("it is dark", `location.pathname === "/runs/`+id+`" && `+ground+`"rgb(16, 23, 26)"`)
	x.click(`footer a[href*="clock=24h"]`)
	x.Wait("it has 24 hours", `document.documentElement.dataset.clock === "24h" && !/[AP]M/.test(document.getElementById("notes").innerText)`)
	x.SetColorScheme("dark")
	x.click(`footer a[href*="theme=light"]`)
	x.Wait("it is light, although the system is dark", ground+`"rgb(251, 252, 252)"`)
	x.click(`footer a[href*="theme=auto"]`)
	x.Wait("it is that of the system", ground+`"rgb(16, 23, 26)"`)
	x.click(`footer a[href*="clock=local"]`)
	x.Wait("the clock is that of the browser", `!document.documentElement.dataset.clock`)
	x.SetColorScheme("light")
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
	x.visit(g.h.Progress(new(control.BulkJob), control.BulkRetryLatest, 7000, "/dead"))
	x.looksRight(dir, "progress")
	x.quiet()
}
