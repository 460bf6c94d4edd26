package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// ErrReplaced means that the cluster that a process has joined is gone, and that another
// one was created under its name.
var ErrReplaced = errors.New("the cluster is not the one that this process has joined")

// err returns why the process can't be a member again, nil while it can.
func (m *membership) err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wrong
}

// confirmCluster fails if the records belong to another cluster than the one that
// the process has joined. A server that was away may still have the bucket of an
// earlier cluster, so the leader of the bucket decides.
func (m *membership) confirmCluster(ctx context.Context, records []record) error {
	for _, r := range records {
		if r.key != settingsKey {
			continue
		}
		var s settings
		if err := json.Unmarshal(r.value, &s); err == nil && s.ID == m.settings.ID {
			return nil
		}
		if err := m.confirmSettings(ctx); err != nil {
			return err
		}
		return fmt.Errorf("a replica of bucket %s is of another cluster", m.bucket.name)
	}
	return nil // the replica is behind and has no settings yet: that proves nothing
}

// confirmSettings asks the leader of the bucket whether the cluster is still the one
// that the process has joined. If it is another one, the process can't be a member.
func (m *membership) confirmSettings(ctx context.Context) error {
	if err := m.bucket.barrier(ctx); err != nil {
		return err
	}
	s, _, err := m.bucket.settings(ctx)
	if errors.Is(err, errNoMessage) {
		return fmt.Errorf("bucket %s has no settings yet: the member that creates it has not written them", m.bucket.name)
	}
	if err != nil {
		return err
	}
	if s.ID == m.settings.ID {
		return nil
	}
	return m.endForGood(s)
}

// endForGood ends the membership in a cluster that was replaced. now has the settings of
// the new cluster, which has the same name.
func (m *membership) endForGood(now settings) error {
	m.mu.Lock()
	first := m.wrong == nil
	if first {
		m.wrong = fmt.Errorf("%w: the streams of cluster %s, created at %s, are gone, and a new cluster was created at %s. "+
			"Start this process again, and it joins the new one, which does not have the runs of the old one: %s",
			ErrReplaced, m.cfg.Name, stamp(m.settings.Created), stamp(now.Created), restoring)
		m.joined = false
	}
	err := m.wrong
	m.mu.Unlock()
	m.onEnd(err)
	if first {
		close(m.ended)
	}
	return err
}

func stamp(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") }
