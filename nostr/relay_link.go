package nostr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
)

// relayLink connects a relay to a websocket: it dials, reads, writes and pings.
type relayLink struct{ *relay }

// run maintains a link to the relay until the context ends.
func (r relayLink) run(ctx context.Context) {
	defer r.stop()
	for ctx.Err() == nil {
		err := r.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		r.waitToRedial(ctx, r.linkLost(err, time.Now()))
	}
}

// connect makes a link, and returns why it ended after all its goroutines have
// ended.
func (r relayLink) connect(ctx context.Context) error {
	r.setPhase(linkDialling, time.Now())
	conn, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }() // does nothing if the connection has ended
	r.setPhase(linkUp, time.Now())
	r.log.Info("link up")

	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var group sync.WaitGroup
	var errs [3]error
	for i, work := range []func(context.Context, *websocket.Conn) error{r.read, r.write, r.ping} {
		group.Go(func() {
			errs[i] = work(ctx, conn)
			end(errs[i])
		})
	}
	group.Wait()
	return firstReason(context.Cause(ctx), errs[:])
}

// firstReason returns why a link ended. The goroutine that gives up closes the
// socket. The other goroutines may report an error before it, but their errors do not
// say why the link ended.
func firstReason(first error, all []error) error {
	if !errors.Is(first, net.ErrClosed) {
		return first
	}
	i := slices.IndexFunc(all, func(err error) bool { return !errors.Is(err, net.ErrClosed) })
	if i < 0 {
		return first
	}
	return all[i]
}

func (r relayLink) dial(ctx context.Context) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.DialTimeout)
	defer cancel()
	//nolint:bodyclose // Dial says that it never needs to be
	conn, answer, err := websocket.Dial(ctx, r.url, &websocket.DialOptions{HTTPClient: r.cfg.HTTPClient})
	switch {
	case err != nil && answer != nil && answer.StatusCode != http.StatusSwitchingProtocols:
		return nil, fmt.Errorf("dial: the relay answered with status %d", answer.StatusCode)
	case err != nil:
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the address, which may contain a token
		}
		return nil, fmt.Errorf("dial: %w", err)
	}
	conn.SetReadLimit(maxSkipped)
	return conn, nil
}

// write sends every frame that is due. A write that stalls ends the link.
func (r relayLink) write(ctx context.Context, conn *websocket.Conn) error {
	for {
		frame, next, err := r.due(time.Now())
		switch {
		case err != nil:
			return err
		case frame != nil:
			err = r.send(ctx, conn, frame)
		default:
			err = r.sleep(ctx, next)
		}
		if err != nil {
			return err
		}
	}
}

func (r relayLink) send(ctx context.Context, conn *websocket.Conn, frame []byte) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.WriteTimeout)
	defer cancel()
	if err := conn.Write(ctx, websocket.MessageText, frame); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// ping detects links that are dead.
func (r relayLink) ping(ctx context.Context, conn *websocket.Conn) error {
	tick := time.Tick(r.cfg.PingEvery)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick:
		}
		wait, cancel := context.WithTimeout(ctx, r.cfg.PingTimeout)
		err := conn.Ping(wait)
		cancel()
		if err != nil {
			return fmt.Errorf("ping: %w", err)
		}
		r.recordContact(time.Now())
	}
}

// sleep waits until the writer is woken, or until next if it is not zero.
func (r relayLink) sleep(ctx context.Context, next time.Time) error {
	var after <-chan time.Time
	if !next.IsZero() {
		after = time.After(time.Until(next))
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.wake:
	case <-after:
	}
	return nil
}

// waitToRedial waits before the next dial. Meanwhile it drops expired events.
func (r relayLink) waitToRedial(ctx context.Context, wait time.Duration) {
	until := time.Now().Add(wait)
	for now := time.Now(); now.Before(until); now = time.Now() {
		r.mu.Lock()
		r.outbox.expire(now)
		next := earlier(until, r.outbox.nextExpiry())
		r.mu.Unlock()
		if r.sleep(ctx, next) != nil {
			return
		}
	}
}

// recordContact records when the relay was heard last.
func (r relayLink) recordContact(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.contact = now
}

// maxSkipped is the size up to which a message that is too large is read and
// skipped.
const maxSkipped = 8 << 20

// read handles the relay's messages on this goroutine, so that a relay that
// sends faster than they are handled is slowed down by its own socket.
func (r relayLink) read(ctx context.Context, conn *websocket.Conn) error {
	for {
		kind, data, err := r.readFrame(ctx, conn)
		now := time.Now()
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		r.recordContact(now)
		if err := r.handleFrame(kind, data, now); err != nil {
			return err
		}
	}
}

// readFrame returns a message; nil data means that it was too large and was
// skipped. Relays store events of any size, and one of them must not block all
// others.
func (r relayLink) readFrame(ctx context.Context, conn *websocket.Conn) (websocket.MessageType, []byte, error) {
	kind, from, err := conn.Reader(ctx)
	if err != nil {
		return 0, nil, err
	}
	data, err := io.ReadAll(io.LimitReader(from, MaxFrame+1))
	if err != nil || len(data) <= MaxFrame {
		return kind, data, err
	}
	r.count(&r.counts.oversized)
	if _, err = io.Copy(io.Discard, from); errors.Is(err, websocket.ErrMessageTooBig) {
		err = errTooLarge
	}
	return kind, nil, err
}

// handleFrame parses and handles a frame. An error ends the link.
func (r relayLink) handleFrame(kind websocket.MessageType, data []byte, now time.Time) error {
	if data == nil {
		return nil
	}
	m, err := ParseRelayMessage(data)
	if kind == websocket.MessageText && err == nil {
		return relayReceiver{r.relay}.receive(m, now)
	}
	if err != nil {
		r.log.Debug("bad frame", "error", printable(err.Error()))
	}
	return r.countGarbage(&r.counts.frames, now)
}
