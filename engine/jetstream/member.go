package jetstream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

var errExpelled = errors.New("the other members have taken this one for dead; it joins again")

// newMemberID returns a short name that no other member has.
func newMemberID() string { return strings.ToLower(rand.Text()[:10]) }

// Member implements [journal.Cluster].
func (l *Log) Member() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id
}

// join becomes a member under a new id.
func (l *Log) join(ctx context.Context) error {
	id, now := newMemberID(), time.Now()
	record := memberRecord{Name: l.cfg.MemberName, Joined: now.UTC(), Wall: now.UTC(), Beat: 1}
	// First, so that nobody takes us for a process that is gone.
	desk, err := l.openMemberDesk(id)
	if err != nil {
		return err
	}
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	revision, err := l.bucket.put(ctx, memberKey(id), text, 0)
	if err != nil {
		// If it was stored after all it stays silent, and is expelled.
		desk.close()
		return fmt.Errorf("join: %w", err)
	}
	l.mu.Lock()
	old := l.desk
	l.id, l.joined, l.revision, l.record, l.desk = id, l.wrong == nil, revision, record, desk
	l.pulse.beat(now)
	l.desk.serve(l.answer)
	l.mu.Unlock()
	if old != nil {
		old.close()
	}
	l.stir()
	l.notify(revision)
	l.wanted.tell(revision)
	return nil
}

// rejoin joins again, if there is still what we were expelled from.
func (l *Log) rejoin(ctx context.Context) error {
	if err := l.askSettings(ctx); err != nil {
		return err
	}
	return l.join(ctx)
}

// unjoin ends being a member. The last sign of life may have arrived without an
// answer, so its record is looked for.
func (l *Log) unjoin(ctx context.Context) error {
	key := memberKey(l.Member())
	r, err := l.bucket.get(ctx, key)
	if errors.Is(err, errNoMessage) {
		return nil
	}
	if err != nil {
		return err
	}
	err = l.bucket.remove(ctx, key, r.revision)
	if errors.Is(err, errConflict) {
		return errChanged
	}
	if err == nil {
		l.notify(0)
	}
	return err
}

// beats gives signs of life, and joins again when the others did not see them.
func (l *Log) beats() {
	ticker := time.NewTicker(l.timing.beat)
	defer ticker.Stop()
	for {
		select {
		case <-l.life.Done():
			return
		case <-ticker.C:
		}
		err := joins.Do(l.life, func(ctx context.Context) error {
			err := l.beat(ctx)
			l.trouble("the others can't be given a sign of life", err)
			return err
		})
		if errors.Is(err, errExpelled) {
			l.expelled()
			_ = joins.Do(l.life, l.rejoin) // it goes on until it succeeds, or until the log is closed or of no use
		}
		if l.Err() != nil {
			_ = farewells.Do(l.life, l.unjoin) // the others find out by themselves
			return
		}
	}
}

// trouble logs what does not work once, and when it works again.
func (l *Log) trouble(what string, err error) {
	if l.life.Err() != nil {
		return
	}
	l.mu.Lock()
	known := l.troubles[what]
	l.troubles[what] = err != nil
	l.mu.Unlock()
	switch {
	case err != nil && !known:
		l.cfg.Logger.Warn(what, "error", l.cfg.redact(err.Error()))
	case err == nil && known:
		l.cfg.Logger.Info("over: " + what)
	}
}

// beat gives one sign of life. It counts from when it was begun.
func (l *Log) beat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.timing.fresh)
	defer cancel()
	begun := time.Now()
	l.mu.Lock()
	l.record.Beat++
	l.record.Wall = begun.UTC()
	key, record, revision := memberKey(l.id), l.record, l.revision
	l.mu.Unlock()
	text, err := json.Marshal(record)
	if err != nil {
		return err
	}
	next, err := l.bucket.put(ctx, key, text, revision)
	if errors.Is(err, errConflict) {
		return l.findRecord(ctx, key)
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.revision = next
	l.pulse.beat(begun)
	l.mu.Unlock()
	l.stir()
	return nil
}

// findRecord looks for our record when it was not what we thought. Nobody else
// writes it: either an earlier sign of life did arrive, or we were expelled.
func (l *Log) findRecord(ctx context.Context, key string) error {
	found, err := l.bucket.get(ctx, key)
	if errors.Is(err, errNoMessage) {
		return errExpelled
	}
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.revision = found.revision
	l.mu.Unlock()
	return errors.New("an earlier sign of life arrived late")
}

// expelled ends all that this member had.
func (l *Log) expelled() {
	l.cfg.Logger.Warn("this member was expelled; it joins again if the cluster is still the same", "member", l.Member())
	l.mu.Lock()
	l.joined = false
	l.assign()
	l.mu.Unlock()
	l.endLeases(errExpelled)
}

// endLeases ends all leases without telling anybody.
func (l *Log) endLeases(why error) {
	for _, held := range l.held() {
		held.lose(why)
	}
}

// guard ends our leases when the others may think that we are dead.
func (l *Log) guard() {
	timer := time.NewTimer(l.timing.ended)
	defer timer.Stop()
	for {
		left := l.left()
		if left <= 0 {
			l.endLeases(errSilent)
			left = l.timing.ended
		}
		timer.Reset(left)
		select {
		case <-l.life.Done():
			return
		case <-timer.C:
		case <-l.stirred:
		}
	}
}

var errSilent = errors.New("no sign of life of this member has reached the others in time")

// left returns for how long leases still hold.
func (l *Log) left() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pulse.left(time.Now())
}

// stir has the guard look again.
func (l *Log) stir() {
	select {
	case l.stirred <- struct{}{}:
	default:
	}
}

func (l *Log) connectionChanged() {
	down := !l.c.nc.IsConnected()
	l.mu.Lock()
	l.pulse.down = down
	l.mu.Unlock()
	l.stir()
	if !down {
		l.wanted.tell(0)
	}
}
