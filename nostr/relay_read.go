package nostr

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/coder/websocket"
)

// maxSkipped is how much of a message that is too big is read to get past it.
const maxSkipped = 8 << 20

// read takes what the relay sends. Events are handled here, so that a relay that
// sends faster than they can be is slowed down by its own socket.
func (r *relay) read(ctx context.Context, conn *websocket.Conn) error {
	for {
		kind, data, err := r.frame(ctx, conn)
		now := time.Now()
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		r.touch(now)
		if err := r.take(kind, data, now); err != nil {
			return err
		}
	}
}

// frame returns a message, nil for one that was too big: it was skipped. Relays are
// given events of any size, and one of them must not keep all others from us.
func (r *relay) frame(ctx context.Context, conn *websocket.Conn) (websocket.MessageType, []byte, error) {
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
		err = errEndless
	}
	return kind, nil, err
}

// take handles a message. An error ends the link.
func (r *relay) take(kind websocket.MessageType, data []byte, now time.Time) error {
	if data == nil {
		return nil
	}
	m, err := ParseRelayMessage(data)
	if kind == websocket.MessageText && err == nil {
		return r.receive(m, now)
	}
	if err != nil {
		r.log.Debug("bad frame", "error", printable(err.Error()))
	}
	return r.litter(&r.counts.frames, now)
}
