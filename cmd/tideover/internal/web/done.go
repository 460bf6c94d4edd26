package web

import (
	"fmt"
	"net/url"
	"strconv"
)

// done returns a sentence about the last action. The URL contains the name of the action, never the
// sentence.
func done(v url.Values) string {
	switch v.Get("did") {
	case "cancel":
		return "Canceled."
	case "retry":
		return "Retried."
	case "wake":
		return "The wait was ended; the next attempt starts now."
	case "rerun", "replay", "latest":
		return "This is the new run."
	case "retry-all":
		return doneMany(v, "retried")
	case "latest-all":
		return doneMany(v, "replaced by new runs")
	case "cancel-all":
		return doneMany(v, "canceled")
	}
	return ""
}

// doneMany returns a sentence about the last action on many runs.
func doneMany(v url.Values, what string) string {
	n, _ := strconv.Atoi(v.Get("n"))
	left, _ := strconv.Atoi(v.Get("left"))
	text := fmt.Sprintf("%d %s.", max(n, 0), what)
	if left > 0 {
		text += fmt.Sprintf(" %d skipped: their state did not allow it.", left)
	}
	if v.Get("more") == "1" {
		text += " More runs match: repeat the action to continue."
	}
	return text
}
