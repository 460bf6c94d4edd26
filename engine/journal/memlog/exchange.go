package memlog

import (
	"bytes"
	"context"
	"errors"

	"github.com/tideover/tideover/engine/journal"
)

// errUnanswered is not ErrNobody: the request may have been carried out.
var errUnanswered = errors.New("the process that was asked has gone without an answer")

// exchange is a request and its answer.
type exchange struct {
	from     *process
	to       *server
	answer   journal.Answer
	request  []byte
	answered chan []byte
}

// deliver passes the request to its receiver. A frozen process gets it when it thaws; if
// the process is gone, the request is lost.
func (e *exchange) deliver() {
	if e.to.member.accept(e.deliver) {
		e.answer(e.request, e.reply)
	}
}

// reply sends the answer back. Only the first one counts.
func (e *exchange) reply(answer []byte) {
	answer = bytes.Clone(answer)
	if !e.to.member.accept(func() { e.reply(answer) }) || !e.from.reachable() {
		return
	}
	select {
	case e.answered <- answer:
	default:
	}
}

// wait returns the answer, when it comes.
func (e *exchange) wait(ctx context.Context) (answer []byte, err error) {
	select {
	case answer = <-e.answered:
	case <-e.to.left:
		answer, err = e.last()
	case <-e.from.gone:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	unlock, lockErr := e.from.lock(ctx)
	if lockErr != nil {
		return nil, lockErr
	}
	defer unlock()
	if isClosed(e.from.gone) {
		return nil, e.from.reach()
	}
	return answer, err
}

// last returns the answer that came just before the process was gone.
func (e *exchange) last() ([]byte, error) {
	select {
	case answer := <-e.answered:
		return answer, nil
	default:
		return nil, errUnanswered
	}
}
