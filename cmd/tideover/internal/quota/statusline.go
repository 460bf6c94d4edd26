package quota

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// ParseStatusLine reads what Claude Code gives to the command of its status line. Before the
// first answer of a session, and with an API key, there are no limits in it.
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
		return nil, fmt.Errorf("the status is not JSON as Claude Code writes it: %w", err)
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

// validAccount is what the name of a file may be made of.
var validAccount = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,99}$`)

func pathOf(dir, account string) (string, error) {
	if dir == "" {
		return "", errors.New("there is no home folder to keep the quota in: set HOME")
	}
	if !validAccount.MatchString(account) {
		return "", fmt.Errorf("account: %q is not a name of letters, digits and any of . _ @ + -", account)
	}
	return filepath.Join(dir, account+".json"), nil
}

// Save records the windows of an account in a folder, which it makes.
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
	f, err := os.CreateTemp(dir, ".quota-*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("record the quota: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// maxFile is how large a file of Save is, at most.
const maxFile = 64 << 10

// Load returns what [Save] has recorded, but for windows that are over. It fails with
// [fs.ErrNotExist] if nothing was ever recorded.
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
		err = errors.New("not a file of ours")
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err == nil {
		err = json.Unmarshal(text, &windows)
	}
	if err != nil {
		return nil, fmt.Errorf("the recorded quota of %s (%s): %w; remove the file", account, path, err)
	}
	var current []Window
	for _, w := range windows {
		if w.Resets.After(now) {
			current = append(current, w)
		}
	}
	return current, nil
}
