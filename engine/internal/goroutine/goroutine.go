// Package goroutine has what functions and handlers need of their goroutines: a larger stack, the stack of a
// panic, and, in tests, which goroutine uses a flow.
package goroutine

import (
	"context"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// Watch knows what the goroutines of an engine execute. To find that out takes longer than most else that an
// operation does: so only package enginetest has it.
type Watch struct {
	mu    sync.Mutex
	works map[uint64]Work
	stack [idStack]byte // memory for the stack of the goroutine that holds mu
}

// Work is what a goroutine executes.
type Work int

const (
	Other     Work = iota
	Function       // the function of a flow, or one of its branches
	Operation      // an attempt of an operation, also if the goroutine is that of a function
)

type watchKey struct{}

// With returns a context with which an engine watches its goroutines.
func With(ctx context.Context) context.Context {
	return context.WithValue(ctx, watchKey{}, &Watch{works: map[uint64]Work{}})
}

// Of returns the watch of a context; nil if it has none.
func Of(ctx context.Context) *Watch {
	w, _ := ctx.Value(watchKey{}).(*Watch)
	return w
}

// Begin notes what the current goroutine executes until end is called.
func (w *Watch) Begin(what Work) (end func()) {
	id := ID()
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.works[id]
	w.works[id] = what
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.works[id] = before; before == Other {
			delete(w.works, id)
		}
	}
}

// Current returns the number of the current goroutine, and what it executes.
func (w *Watch) Current() (id uint64, work Work) {
	w.mu.Lock()
	defer w.mu.Unlock()
	id = readID(&w.stack)
	return id, w.works[id]
}

// ID returns the number of the current goroutine.
func ID() uint64 { return readID(new([idStack]byte)) }

// idStack is how much of a stack has the number of its goroutine, in bytes.
const idStack = 64

// readID reads the number of the current goroutine, with which its stack begins.
func readID(stack *[idStack]byte) (id uint64) {
	const before = "goroutine "
	for _, c := range stack[len(before):runtime.Stack(stack[:], false)] {
		if c < '0' || c > '9' {
			break
		}
		id = 10*id + uint64(c-'0')
	}
	return id
}

// GrowStack makes the stack of the goroutine larger. A handler or function decodes JSON, which needs
// more than a stack has at first: to copy it then, with many frames on it, takes longer.
func GrowStack() { growStack(false) }

// growStack has a large frame, for which it gets a larger stack when it is called. It clears the frame
// only if it uses it.
//
//go:noinline
func growStack(use bool) {
	if use {
		var frame [4 << 10]byte
		runtime.KeepAlive(&frame)
	}
}

// PanicStack returns the stack of a panic, without the frames of recovering from it.
func PanicStack() string {
	s := string(debug.Stack())
	if _, rest, ok := strings.Cut(s, "\npanic("); ok {
		if lines := strings.SplitN(rest, "\n", 3); len(lines) == 3 {
			s = lines[2]
		}
	}
	return s
}
