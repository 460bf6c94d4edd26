package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

const (
	maxCalls = 4096             // of other processes, that are worked on at once
	maxWaits = 16384            // of those that only wait
	callTime = 30 * time.Second // that one may take here
)

// answer answers what other processes ask a shard.
func (cl *cluster) answer(sh *shard) journal.Answer { return cl.answers(sh.called) }

// answers answers calls, so many at once.
func (cl *cluster) answers(perform func(context.Context, *call) (answer, error)) journal.Answer {
	return func(request []byte, reply func([]byte)) {
		c := new(call)
		if err := json.Unmarshal(request, c); err != nil {
			reply(sealed(answer{}, fmt.Errorf("%w: %w", errCall, err)))
			return
		}
		places := cl.calls
		if c.Op == opWait || c.Op == opEvents {
			places = cl.waits
		}
		select {
		case places <- struct{}{}:
		default:
			reply(sealed(answer{}, errBusy))
			return
		}
		go func() {
			defer func() { <-places }()
			ctx, cancel := context.WithTimeout(context.Background(), callTime)
			defer cancel()
			reply(sealed(guarded(ctx, c, perform)))
		}()
	}
}

// guarded is perform for requests that no version of this program sends.
func guarded(ctx context.Context, c *call, perform func(context.Context, *call) (answer, error)) (a answer, err error) {
	defer func() {
		if p := recover(); p != nil {
			a, err = answer{}, fmt.Errorf("%w: %v", errCall, p)
		}
	}()
	return perform(ctx, c)
}

// called does what another process asks.
func (sh *shard) called(ctx context.Context, c *call) (answer, error) {
	if c.Op != opWait {
		return sh.perform(ctx, c)
	}
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	a, err := sh.perform(ctx, c)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return a, err
}

// sealed returns an answer as it is sent.
func sealed(a answer, err error) []byte {
	a.Error = faultOf(err)
	text, err := encode(a)
	if err != nil {
		text, _ = encode(answer{Error: faultOf(err)}) // of strings
	}
	return text
}

// encode returns JSON, in which the JSON of others is as it was.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}
