// Package quota reads how much of an account's quota is used: from "codex app-server", and from the
// status line of Claude Code, which [Save] records.
package quota

import (
	"fmt"
	"time"
)

// Window is a period with a quota.
type Window struct {
	Name   string    `json:"name"`            // such as "5-hour"
	Used   float64   `json:"used"`            // percent
	Resets time.Time `json:"resets,omitzero"` // start of the next period; zero if unknown
}

// String says how much is used.
func (w Window) String() string { return fmt.Sprintf("%.4g%% of the %s quota is used", w.Used, w.Name) }

// Above returns the window of which at least this percentage is used; nil if there is none. Of
// several it returns the one that resets last.
func Above(windows []Window, percent float64) *Window {
	var found *Window
	for i := range windows {
		if w := &windows[i]; w.Used >= percent && (found == nil || found.Resets.Before(w.Resets)) {
			found = w
		}
	}
	return found
}

// nameOf returns the name of a window by its length.
func nameOf(length time.Duration) string {
	switch {
	case length <= 0:
		return "whole"
	case length%(7*24*time.Hour) == 0 && length == 7*24*time.Hour:
		return "weekly"
	case length%(24*time.Hour) == 0:
		return fmt.Sprintf("%d-day", length/(24*time.Hour))
	case length%time.Hour == 0:
		return fmt.Sprintf("%d-hour", length/time.Hour)
	default:
		return fmt.Sprintf("%d-minute", length/time.Minute)
	}
}
