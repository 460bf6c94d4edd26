package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

// ErrAway says that the shard of a run did not answer, or one that may have what
// is asked for. It may do so later.
var ErrAway = errors.New("did not answer")

// unreached is an error of a shard that nobody could be asked for.
type unreached struct {
	shard int
	err   error
}

func (u *unreached) Error() string { return fmt.Sprintf("shard %d: %v", u.shard, u.err) }
func (u *unreached) Unwrap() error { return u.err }

// Is makes it known as silence.
func (u *unreached) Is(target error) bool { return target == ErrAway }

func isUnreached(err error) bool {
	_, ok := errors.AsType[*unreached](err)
	return ok
}

// ask asks the owner of a shard, wherever it is. As long as there is none it is
// waited for.
func (cl *cluster) ask(ctx context.Context, shard int, c *call) (answer, error) {
	return cl.askAt(ctx, shard, c, func() int { return shard })
}

// askAt asks the owner of a shard, or when nobody took the call that of another.
func (cl *cluster) askAt(ctx context.Context, shard int, c *call, other func() int) (answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(cl.stop, cancel)()
	var last, refused error // why nobody was asked, and what was answered
	sent := false           // the shard may have done it
	a, err := retry.Value(ctx, store.CallPolicy, func(ctx context.Context) (answer, error) {
		if last != nil && !sent {
			shard = other()
		}
		a, err := cl.askOnce(ctx, shard, c)
		_, gone := errors.AsType[untaken](err)
		switch {
		case err == nil:
			return a, nil
		case gone, errors.Is(err, journal.ErrNobody), errors.Is(err, errBusy):
			last = err
			return a, err
		case isUnreached(err) && c.again():
			last, sent = err, true
			return a, err
		default:
			refused = err
			return a, retry.Permanent(err)
		}
	})
	switch {
	case err == nil:
		return a, nil
	case cl.stop.Err() != nil && (refused == nil || errors.Is(refused, context.Canceled) || isUnreached(refused)):
		return a, ErrClosed
	case refused != nil:
		return a, refused
	case ctx.Err() != nil && last != nil: // otherwise the runner's error ends with it
		err = fmt.Errorf("%w: %w", context.Cause(ctx), last)
	}
	if why := cl.wrongs(); why != "" && errors.Is(err, journal.ErrNobody) {
		err = fmt.Errorf("%w; this process can't work either: %s", err, why)
	}
	return a, &unreached{shard, err}
}

// again makes the call one that is made again, because it is not known whether it
// was carried out. It reports false if it must not be.
func (c *call) again() bool {
	switch c.Op {
	case opStart:
		c.Start.Again = true
		return true
	case opGet, opDefinition, opHas, opWait, opList, opGroups, opFind, opStats, opSchedule, opSchedules:
		return true
	default:
		return false
	}
}

func (cl *cluster) askOnce(ctx context.Context, shard int, c *call) (a answer, err error) {
	if sh := cl.get(shard); sh != nil {
		a, err = sh.called(ctx, c)
		return a, reached(shard, err)
	}
	request, err := encode(c)
	if err != nil {
		return a, err
	}
	if len(request) > journal.MaxEntry {
		return a, fmt.Errorf("%s: %w: %d bytes, at most %d can be sent to another process", c.Op, ErrTooLarge, len(request), journal.MaxEntry)
	}
	text, err := cl.log.Call(ctx, shard, request)
	if err != nil {
		if !errors.Is(err, journal.ErrNobody) {
			err = &unreached{shard, fmt.Errorf("%w; it may have been done", err)}
		}
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("answer of shard %d: %w", shard, err)
	}
	return a, reached(shard, a.Error.err())
}

// reached returns the error of a shard that was asked; if it has ended meanwhile,
// it is not known what became of it.
func reached(shard int, err error) error {
	if _, gone := errors.AsType[untaken](err); !gone && errors.Is(err, ErrClosed) {
		return &unreached{shard, err}
	}
	return err
}
