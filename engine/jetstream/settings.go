package jetstream

import (
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

// format is the version of the stored formats.
const format = 1

// identityKey is the key for the id of the cluster in the metadata of a stream: a
// stream that was made by hand has none.
const identityKey = "tideover-cluster"

// settings are common to all members of a cluster. They never change.
type settings struct {
	Version   int           `json:"version"`
	ID        string        `json:"id"`
	Shards    int           `json:"shards"`
	Replicas  int           `json:"replicas"`
	MaxBytes  int64         `json:"max_bytes,omitempty"`
	LeaseTime time.Duration `json:"lease_time_ns"`
	Created   time.Time     `json:"created"`
	Ready     bool          `json:"ready"` // all streams were created; a missing one is never created again
}

// check returns an error if this program can't work with the settings, or if the
// configuration has another number of shards.
func (s settings) check(cfg Config, bucket string) error {
	if s.Version > format {
		return fmt.Errorf("%w: cluster %s has version %d, and this program knows %d", journal.ErrNewer, cfg.Name, s.Version, format)
	}
	if cfg.Shards != 0 && cfg.Shards != s.Shards {
		return retry.Permanent(&shardsError{cfg.Prefix, cfg.Name, s.Shards, cfg.Shards})
	}
	if s.Shards < 1 || s.Shards > MaxShards || s.LeaseTime < time.Second {
		return fmt.Errorf("%w: the settings in bucket %s make no sense: %+v", journal.ErrDamaged, bucket, s)
	}
	return nil
}

// shardsError means that the configuration asks for another number of shards than the
// cluster has.
type shardsError struct {
	prefix, name string
	has, want    int
}

func (e *shardsError) Error() string {
	return fmt.Sprintf("%sshards: cluster %s has %d, not %d, and the number can't be changed: write %[3]d or leave it out, "+
		"or move everything to a cluster with another name", e.prefix, e.name, e.has, e.want)
}
