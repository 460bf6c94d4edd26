package jetstream

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/journal"
)

// sweep removes parts of blobs that earlier owners have not finished. It is done
// in the background, and left to the next owner if it fails.
func (l *lease) sweep() {
	err := asks.Do(l.life, func(ctx context.Context) error { return l.sweepOnce(ctx) })
	if err != nil && l.life.Err() == nil {
		l.log.cfg.Logger.Warn("unfinished blobs can't be removed", "shard", l.shard, "error", l.log.cfg.redact(err.Error()))
	}
}

func (l *lease) sweepOnce(ctx context.Context) error {
	o := l.objects()
	subjects, err := o.subjects(ctx, chunkSubject(o.names, ">"))
	if err != nil {
		return err
	}
	infos, err := o.list(ctx, l.shard)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, info := range infos {
		used[info.NUID] = true
	}
	for _, s := range subjects {
		id, shard, epoch, ok := o.writerOf(s)
		if !ok || shard != l.shard || epoch >= l.epoch || used[id] {
			continue
		}
		if err := o.purgeOld(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// purgeOld removes chunks that nobody can be about to finish.
func (o *objects) purgeOld(ctx context.Context, subject string) error {
	last, err := o.get(ctx, getRequest{Last: subject})
	if errors.Is(err, errNoMessage) || err == nil && time.Since(last.time) < o.sweepAge {
		return nil
	}
	if err != nil {
		return err
	}
	return o.purge(ctx, subject, 0)
}

// copyToSecond copies every blob that the second place lacks.
func (l *lease) copyToSecond(ctx context.Context) {
	if l.objects().second == nil {
		return
	}
	if err := l.tryCopyToSecond(ctx); err != nil {
		l.objects().second.fail(err)
		l.log.cfg.Logger.Error("the second place has not all blobs", "shard", l.shard, "error", l.log.cfg.redact(err.Error()))
		return
	}
	l.objects().second.fail(nil)
}

func (l *lease) tryCopyToSecond(ctx context.Context) error {
	var infos []*natsjs.ObjectInfo
	var err error
	for a := range asks.Attempts(ctx, &err) {
		infos, err = l.objects().list(a.Context(), l.shard)
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, info := range infos {
		errs = append(errs, l.copyOne(ctx, info))
	}
	return errors.Join(errs...)
}

// copyOne copies a blob, unless the second place has it.
func (l *lease) copyOne(ctx context.Context, info *natsjs.ObjectInfo) error {
	_, name, _ := strings.Cut(info.Name, "/")
	second := l.objects().second
	if sum, err := second.sum(l.shard, name); err == nil && sum == info.Digest {
		return nil
	}
	ctx, cancel := l.during(ctx)
	defer cancel()
	f, err := l.open(ctx, info)
	if err != nil {
		return err
	}
	defer f.Close()
	tmp, err := second.write(ctx, l.shard, f)
	defer os.Remove(tmp) //nolint:errcheck // gone if all went well, and removed later if not
	if err != nil {
		return err
	}
	if err := l.pass(ctx, l.gate); err != nil {
		return err
	}
	defer func() { <-l.gate }()
	now, err := l.findOwned(ctx, name)
	if errors.Is(err, journal.ErrNoBlob) || err == nil && now.NUID != info.NUID {
		return nil // deleted or replaced meanwhile
	}
	if err != nil {
		return err
	}
	return second.put(l.shard, name, tmp)
}
