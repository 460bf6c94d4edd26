package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/internal/shard"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/internal/workflow"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/internal/plainjson"
	"github.com/tideover/tideover/retry"
)

const (
	maxWaits = 16384            // the same for calls that only wait
	callTime = 30 * time.Second // how long a call of another process may take
	fanOut   = 5 * time.Second  // how long a call to all shards waits for their answers
)

// shardUnreachable is the error of a call to a shard that has no owner, or whose owner did
// not answer.
type shardUnreachable struct {
	shard int
	err   error
}

func (e *shardUnreachable) Error() string { return fmt.Sprintf("shard %d: %v", e.shard, e.err) }
func (e *shardUnreachable) Unwrap() error { return e.err }

// Is makes errors.Is match [shard.ErrAway].
func (e *shardUnreachable) Is(target error) bool { return target == shard.ErrAway }

func isUnreachable(err error) bool {
	_, ok := errors.AsType[*shardUnreachable](err)
	return ok
}

// remoteCalls sends calls to the owners of shards, in this process or in others, and answers
// the calls of other processes.
type remoteCalls struct {
	log    journal.Cluster
	shards *shardTable
	stop   context.Context // ends when the engine is closed

	working chan struct{} // semaphore: limits the calls of other processes
	waiting chan struct{} // the same for calls that only wait
}

// ask sends a call to the owner of a shard. While the shard has no owner, it tries again as
// store.CallPolicy says.
func (rc *remoteCalls) ask(ctx context.Context, number int, c *shard.Call) (shard.Answer, error) {
	return rc.askAt(ctx, number, c, func() int { return number })
}

// askAt is ask, except that it may change the shard: if a shard does not accept the call,
// askAt tries the shard that other returns next, unless the call may have been carried out
// already.
func (rc *remoteCalls) askAt(ctx context.Context, number int, c *shard.Call, other func() int) (shard.Answer, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(rc.stop, cancel)()
	var last, refused error // the last error that is retried, and an error that is final
	sent := false           // the shard may have carried out the call
	a, err := retry.Value(ctx, store.CallPolicy, func(ctx context.Context) (shard.Answer, error) {
		if last != nil && !sent {
			number = other()
		}
		a, err := rc.askOnce(ctx, number, c)
		_, gone := errors.AsType[shard.NotAccepted](err)
		switch {
		case err == nil:
			return a, nil
		case gone, errors.Is(err, journal.ErrNobody), errors.Is(err, shard.ErrBusy):
			last = err
			return a, err
		case isUnreachable(err) && c.MarkRepeated():
			last, sent = err, true
			return a, err
		default:
			refused = err
			return a, retry.Permanent(err)
		}
	})
	if err == nil {
		return a, nil
	}
	return a, rc.failure(ctx, number, err, last, refused)
}

// failure returns the error of a call to a shard that has failed: last is the last error after which it was
// tried again, and refused one that is final.
func (rc *remoteCalls) failure(ctx context.Context, number int, err, last, refused error) error {
	switch {
	case rc.stop.Err() != nil && (refused == nil || errors.Is(refused, context.Canceled) || isUnreachable(refused)):
		return shard.ErrClosed
	case refused != nil:
		return refused
	case ctx.Err() != nil && last != nil: // if the context has not ended, err includes last already
		err = fmt.Errorf("%w: %w", context.Cause(ctx), last)
	}
	if why := rc.shards.anyTrouble(); why != "" && errors.Is(err, journal.ErrNobody) {
		err = fmt.Errorf("%w; this process can't work either: %s", err, why)
	}
	return &shardUnreachable{number, err}
}

func (rc *remoteCalls) askOnce(ctx context.Context, number int, c *shard.Call) (a shard.Answer, err error) {
	if s := c.Start; s != nil {
		shard.SetDelay(s.Due, &s.At, &s.In)
	}
	if sh := rc.shards.get(number); sh != nil {
		a, err = sh.PerformForOthers(ctx, c)
		return a, reached(number, err)
	}
	request, err := plainjson.Marshal(c) // without HTML escapes, inputs in it stay the same bytes
	if err != nil {
		return a, err
	}
	if len(request) > journal.MaxEntry {
		return a, fmt.Errorf("%s: %w: %d bytes, at most %d can be sent to another process", c.Op, workflow.ErrTooLarge, len(request), journal.MaxEntry)
	}
	text, err := rc.log.Call(ctx, number, request)
	if err != nil {
		if !errors.Is(err, journal.ErrNobody) {
			err = &shardUnreachable{number, fmt.Errorf("%w; the request may have been carried out", err)}
		}
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("answer of shard %d: %w", number, err)
	}
	return a, reached(number, a.Error.Err())
}

// reached converts the error of a shard that got a call. ErrClosed becomes shardUnreachable,
// because the shard may have carried out the call before it stopped. NotAccepted says that it
// has not, and stays.
func reached(number int, err error) error {
	if _, gone := errors.AsType[shard.NotAccepted](err); !gone && errors.Is(err, shard.ErrClosed) {
		return &shardUnreachable{number, err}
	}
	return err
}

// answerWith returns a function that answers calls of other processes by perform. It answers
// ErrBusy if too many calls are being handled.
func (rc *remoteCalls) answerWith(perform func(context.Context, *shard.Call) (shard.Answer, error)) journal.Answer {
	return func(request []byte, reply func([]byte)) {
		c := new(shard.Call)
		if err := json.Unmarshal(request, c); err != nil {
			reply(encodeAnswer(shard.Answer{}, fmt.Errorf("%w: %w", shard.ErrCall, err)))
			return
		}
		places := rc.working
		if c.Op == shard.OpWait || c.Op == shard.OpEvents {
			places = rc.waiting
		}
		select {
		case places <- struct{}{}:
		default:
			reply(encodeAnswer(shard.Answer{}, shard.ErrBusy))
			return
		}
		go func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(context.Background(), callTime)
			defer cancel()
			reply(encodeAnswer(guarded(ctx, c, perform)))
		}()
	}
}

// guarded calls perform, and returns a panic as ErrCall: a malformed request of another
// process must not end this one.
func guarded(ctx context.Context, c *shard.Call, perform func(context.Context, *shard.Call) (shard.Answer, error)) (a shard.Answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			a, err = shard.Answer{}, fmt.Errorf("%w: %v", shard.ErrCall, p)
		}
	}()
	return perform(ctx, c)
}

// encodeAnswer returns an answer as it is sent.
func encodeAnswer(a shard.Answer, err error) []byte {
	a.Error = shard.NewFault(err)
	text, err := plainjson.Marshal(a) // without HTML escapes, outputs in it stay the same bytes
	if err != nil {
		text, _ = plainjson.Marshal(shard.Answer{Error: shard.NewFault(err)}) // can't fail: strings
	}
	return text
}
