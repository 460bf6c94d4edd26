package jetstream

import (
	"context"
	"errors"
	"time"
)

// sweep removes the chunks of blobs that earlier owners have not finished. It runs in
// the background; if it fails, the next owner tries again.
func (b *leaseBlobs) sweep() {
	err := asks.Do(b.lease.life, func(ctx context.Context) error { return b.sweepOnce(ctx) })
	if err != nil && b.lease.life.Err() == nil {
		b.lease.warn("unfinished blobs can't be removed", err)
	}
}

func (b *leaseBlobs) sweepOnce(ctx context.Context) error {
	o := b.objects
	subjects, err := o.subjects(ctx, chunkSubject(o.names, ">"))
	if err != nil {
		return err
	}
	infos, err := o.list(ctx, b.lease.shard)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, info := range infos {
		used[info.NUID] = true
	}
	for _, s := range subjects {
		id, shard, epoch, ok := o.writerOf(s)
		if !ok || shard != b.lease.shard || epoch >= b.lease.epoch || used[id] {
			continue
		}
		if err := o.purgeOld(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// purgeOld removes the chunks of a subject, unless they are so new that a member may
// still be uploading them.
func (o *objects) purgeOld(ctx context.Context, subject string) error {
	last, err := o.get(ctx, getRequest{Last: subject})
	if errors.Is(err, errNoMessage) || err == nil && time.Since(last.Time) < o.sweepAge {
		return nil
	}
	if err != nil {
		return err
	}
	return o.purge(ctx, subject, 0)
}
