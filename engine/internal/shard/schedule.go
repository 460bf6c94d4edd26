package shard

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/tideover/tideover/engine/info"
)

// ParseCron returns the first time after the given one at which a cron expression is due.
// It fails if the expression is not valid or is never due.
func ParseCron(text string, after time.Time) (next time.Time, err error) {
	defer func() {
		if p := recover(); p != nil { // the parser panics if the text has only a time zone
			err = fmt.Errorf("cron %q: %v", text, p)
		}
	}()
	s, err := cron.ParseStandard(text)
	if err != nil {
		return time.Time{}, fmt.Errorf("cron %q: %w", text, err)
	}
	next = s.Next(after)
	if next.IsZero() {
		return next, fmt.Errorf("cron %q: is never due", text)
	}
	return next, nil
}

// sameSchedule reports whether two schedules are equal, apart from Next, Refused and Paused.
func sameSchedule(s, other info.Schedule) bool {
	s.Refused, other.Refused = nil, nil
	s.Paused, other.Paused = nil, nil
	return string(storedSchedule(s)) == string(storedSchedule(other))
}

// storedSchedule returns the schedule as it is stored: JSON without Next, which the record has.
func storedSchedule(s info.Schedule) []byte {
	s.Next = time.Time{}
	text, _ := json.Marshal(s) // can't fail: strings and valid JSON
	return text
}

// noteRefused notes that the start that is due was refused.
func noteRefused(s *info.Schedule, why string) {
	r := info.RefusedStart{At: s.Next, Since: s.Next, Count: 1, Error: why}
	if s.Refused != nil {
		r.Since, r.Count = s.Refused.Since, s.Refused.Count+1
	}
	s.Refused = &r
}
