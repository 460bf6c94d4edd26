package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// confirmCluster fails if the records belong to another cluster than the one that
// the process has joined. A server that was away may still have the bucket of an
// earlier cluster, so the leader of the bucket decides.
func (b *backend) confirmCluster(ctx context.Context, records []record) error {
	for _, r := range records {
		if r.key != settingsKey {
			continue
		}
		var s settings
		if err := json.Unmarshal(r.value, &s); err == nil && s.ID == b.settings.ID {
			return nil
		}
		if err := b.confirmSettings(ctx); err != nil {
			return err
		}
		return fmt.Errorf("a replica of bucket %s is of another cluster", b.bucket.name)
	}
	return nil // the replica is behind and has no settings yet: that proves nothing
}

// confirmSettings asks the leader of the bucket whether the cluster is still the one
// that the process has joined. If it is another one, the error is [ErrReplaced].
func (b *backend) confirmSettings(ctx context.Context) error {
	if err := b.bucket.barrier(ctx); err != nil {
		return err
	}
	s, _, err := b.bucket.settings(ctx)
	if errors.Is(err, errNoMessage) {
		return fmt.Errorf("bucket %s has no settings yet: the member that creates it has not written them", b.bucket.name)
	}
	if err != nil {
		return err
	}
	if s.ID == b.settings.ID {
		return nil
	}
	return fmt.Errorf("%w: the streams of cluster %s, created at %s, are gone, and a new cluster was created at %s. "+
		"Start this process again, and it joins the new one, which does not have the runs of the old one: %s",
		ErrReplaced, b.cfg.Name, stamp(b.settings.Created), stamp(s.Created), restoring)
}

func stamp(t time.Time) string { return t.Format("2006-01-02 15:04:05 MST") }
