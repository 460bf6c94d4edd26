package engine

import "context"

// CallFunctions calls the functions of all runs that are suspended, as the end of a wait does.
func (e *Engine) CallFunctions(ctx context.Context) error {
	return e.alone.do(ctx, func(t *turn) error {
		for _, run := range t.o.m.All() {
			if run.IsSuspended() {
				t.o.m.CallAgain(run)
			}
		}
		return nil
	})
}
