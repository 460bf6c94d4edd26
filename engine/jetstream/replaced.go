package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// ErrReplaced says that the cluster that a process has joined is gone, and that
// there is another one under its name.
var ErrReplaced = errors.New("the cluster is not the one that this process has joined")

// Ended is closed when this process can't be a member any more, for a reason that
// waiting does not change: [Log.Err] says which. Close does not close it.
func (l *Log) Ended() <-chan struct{} { return l.ended }

// Err returns why the channel of [Log.Ended] is closed, nil as long as it is not.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wrong
}

// notMember says why we are none. The lock is held.
func (l *Log) notMember() error {
	if l.wrong != nil {
		return l.wrong
	}
	return errExpelled
}

// recognise fails if the records are of another cluster than the one we joined. A
// server that was away may still have the bucket of one before, so that its leader
// has the last word.
func (l *Log) recognise(ctx context.Context, records []record) error {
	for _, r := range records {
		if r.key != settingsKey {
			continue
		}
		var s settings
		if err := json.Unmarshal(r.value, &s); err == nil && s.ID == l.settings.ID {
			return nil
		}
		if err := l.askSettings(ctx); err != nil {
			return err
		}
		return fmt.Errorf("a replica of bucket %s is of another cluster", l.bucket.name)
	}
	return nil // of a replica that has yet to hear of anything
}

// askSettings asks the leader of the bucket whether the cluster is still ours. If
// it is another one, we are not a member of it, and end.
func (l *Log) askSettings(ctx context.Context) error {
	if err := l.bucket.barrier(ctx); err != nil {
		return err
	}
	r, err := l.bucket.get(ctx, settingsKey)
	if errors.Is(err, errNoMessage) {
		return fmt.Errorf("bucket %s has no settings: whoever made it has yet to write them", l.bucket.name)
	}
	if err != nil {
		return err
	}
	var s settings
	if err := json.Unmarshal(r.value, &s); err != nil {
		return fmt.Errorf("%w: the settings in bucket %s: %w", journal.ErrDamaged, l.bucket.name, err)
	}
	if s.ID == l.settings.ID {
		return nil
	}
	return l.stray(s)
}

// stray ends all that this process had in a cluster that is gone.
func (l *Log) stray(now settings) error {
	l.mu.Lock()
	if l.wrong == nil {
		l.wrong = fmt.Errorf("%w: the streams of %s of %s are gone, and it was made anew at %s. Start this process again, and it joins the new one; "+
			"what was recorded in the old one is not in it: %s",
			ErrReplaced, l.cfg.Name, stamp(l.settings.Created), stamp(now.Created), restoring)
		l.joined = false
		l.assign()
		close(l.ended)
	}
	err := l.wrong
	l.mu.Unlock()
	l.endLeases(err)
	return err
}

func stamp(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") }
