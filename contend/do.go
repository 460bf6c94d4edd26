package contend

import "context"

// Try is what an attempt knows of those before it.
type Try struct {
	Number int   // of this attempt, from 1
	Lost   error // the conflict by which the attempt before lost; nil if it did not
	Unsure bool  // an attempt before may have been written; look for it before writing again
}

// Do is [Writer.Do] for a proposal with a result.
func Do[T any](ctx context.Context, w *Writer, propose func(context.Context, Try) (T, error)) (v T, err error) {
	var try func(context.Context, Try) error
	if propose != nil {
		try = func(ctx context.Context, t Try) (err error) { v, err = propose(ctx, t); return err }
	}
	if err = w.Do(ctx, try); err != nil {
		var none T
		return none, err
	}
	return v, nil
}
