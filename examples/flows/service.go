package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/tideover/tideover/engine"
)

// service stands for the remote services of your program. The workflows are its methods, because
// their operations need it.
type service struct {
	calls io.Writer // gets two lines for each call, each in one write
}

// call is a request with a side effect: two lines, which show every execution of an operation.
//
// A real service gets an idempotency key with the request, so that it does the work once although
// an operation may be executed again after a crash. The key is made of the run and the operation.
func (s *service) call(ctx context.Context, request string) (answer string, err error) {
	task, _ := engine.TaskOf(ctx)
	key := task.Origin + "/" + task.Step
	if err := s.record("begin", key, task.Total, request); err != nil {
		return "", err
	}
	select {
	case <-time.After(2 * time.Millisecond): // the service works
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	answer = fmt.Sprintf("%s (attempt %d)", request, task.Total)
	return answer, s.record("end", key, task.Total, answer)
}

func (s *service) record(what, key string, attempt int, text string) error {
	_, err := fmt.Fprintf(s.calls, "%d\t%s\t%s\t%d\t%s\n", time.Now().UnixNano(), what, key, attempt, text)
	return err
}
