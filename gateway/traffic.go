package gateway

import "sync"

// traffic counts the requests that are under way.
type traffic struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when there are none; nil while new ones are let in
}

// enter counts one more, unless there are to be no more.
func (t *traffic) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle != nil {
		return false
	}
	t.n++
	return true
}

func (t *traffic) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
	}
}

// stop lets no more in. The channel is closed when all have left.
func (t *traffic) stop() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.idle == nil {
		if t.idle = make(chan struct{}); t.n == 0 {
			close(t.idle)
		}
	}
	return t.idle
}

func (t *traffic) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}
