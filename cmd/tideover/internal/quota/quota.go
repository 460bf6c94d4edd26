// Package quota reads how much of an account's quota is used: from "codex app-server", and from the
// status line of Claude Code, which [Save] records.
package quota

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/internal/atomicfile"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// Window is a period with a quota.
type Window struct {
	Name   string    `json:"name"`            // such as "5-hour"
	Used   float64   `json:"used"`            // percent
	Resets time.Time `json:"resets,omitzero"` // start of the next period; zero if unknown
}

// String returns a sentence that says how much of the quota is used.
func (w Window) String() string { return fmt.Sprintf("%.4g%% of the %s quota is used", w.Used, w.Name) }

// Above returns the window whose quota is used to at least this percentage; nil if there is none.
// Of several windows it returns the one that resets last.
func Above(windows []Window, percent float64) *Window {
	var found *Window
	for i := range windows {
		if w := &windows[i]; w.Used >= percent && (found == nil || found.Resets.Before(w.Resets)) {
			found = w
		}
	}
	return found
}

// nameOf returns the name of a window of this length, such as "5-hour"; "whole" if the length is 0.
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

// ParseStatusLine parses the status that Claude Code passes to its status line command. Before the
// first answer of a session, and with an API key, it contains no limits.
func ParseStatusLine(text []byte) (windows []Window, err error) {
	type window struct {
		UsedPercentage *float64 `json:"used_percentage"`
		ResetsAt       int64    `json:"resets_at"`
	}
	var status struct {
		RateLimits struct {
			FiveHour *window `json:"five_hour"`
			SevenDay *window `json:"seven_day"`
		} `json:"rate_limits"`
	}
	if err := json.Unmarshal(text, &status); err != nil {
		return nil, fmt.Errorf("parsing the status of Claude Code: %w", err)
	}
	for _, w := range []struct {
		*window
		length time.Duration
	}{{status.RateLimits.FiveHour, 5 * time.Hour}, {status.RateLimits.SevenDay, 7 * 24 * time.Hour}} {
		if w.window == nil || w.UsedPercentage == nil {
			continue
		}
		own := Window{Name: nameOf(w.length), Used: *w.UsedPercentage}
		if w.ResetsAt > 0 {
			own.Resets = time.Unix(w.ResetsAt, 0)
		}
		windows = append(windows, own)
	}
	return windows, nil
}

// validAccount matches account names that can be used as file names.
var validAccount = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}$`)

func pathOf(dir, account string) (string, error) {
	if dir == "" {
		return "", errors.New("no home folder to store the quota in: set HOME")
	}
	if !validAccount.MatchString(account) {
		return "", fmt.Errorf("account: %q is not a valid name: want letters, digits and any of . _ @ + -", account)
	}
	return filepath.Join(dir, account+".json"), nil
}

// Save records the windows of an account in a folder, which it creates if necessary.
func Save(dir, account string, windows []Window) error {
	path, err := pathOf(dir, account)
	if err != nil {
		return err
	}
	text, err := json.Marshal(windows)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := atomicfile.WriteUnsynced(path, text); err != nil {
		return fmt.Errorf("recording the quota: %w", err)
	}
	return nil
}

// maxFile is the largest size of a file that Load accepts.
const maxFile = 64 << 10

// Load returns those windows that [Save] has recorded and whose reset is after now. It returns
// [fs.ErrNotExist] if nothing was recorded.
func Load(dir, account string, now time.Time) (windows []Window, err error) {
	path, err := pathOf(dir, account)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		err = fileaccess.Check(path, info, 0o022)
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFile) {
		err = errors.New("not a file of tideover")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil {
		err = json.Unmarshal(text, &windows)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the recorded quota of %s (%s): %w: remove the file", account, path, err)
	}
	return slices.DeleteFunc(windows, func(w Window) bool { return !w.Resets.After(now) }), nil
}
