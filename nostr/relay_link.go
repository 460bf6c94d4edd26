package nostr

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/tideover/tideover/retry"
)

// run keeps a link to the relay until the context ends.
func (r *relay) run(ctx context.Context) {
	defer r.stop()
	for ctx.Err() == nil {
		err := r.link(ctx)
		if ctx.Err() != nil {
			return
		}
		r.pause(ctx, r.linkLost(err, time.Now()))
	}
}

// link makes a link and returns why it ended, after all its goroutines have.
func (r *relay) link(ctx context.Context) error {
	r.setPhase(linkDialling, time.Now())
	conn, err := r.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }() // it has ended, or is cut
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

// firstReason returns why a link ended. Whoever gives up on the socket closes it,
// and the others may be the first to notice; but they don't know why.
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

func (r *relay) dial(ctx context.Context) (*websocket.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.DialTimeout)
	defer cancel()
	//nolint:bodyclose // Dial says that it never needs to be
	conn, answer, err := websocket.Dial(ctx, r.url, &websocket.DialOptions{HTTPClient: r.cfg.HTTPClient})
	switch {
	case err != nil && answer != nil && answer.StatusCode != http.StatusSwitchingProtocols:
		return nil, fmt.Errorf("dial: the relay answered %d", answer.StatusCode)
	case err != nil:
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // without the address, which may hold a token
		}
		return nil, fmt.Errorf("dial: %w", err)
	}
	conn.SetReadLimit(maxSkipped)
	return conn, nil
}

// write sends whatever is due. A write that stalls ends the link.
func (r *relay) write(ctx context.Context, conn *websocket.Conn) error {
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

func (r *relay) send(ctx context.Context, conn *websocket.Conn, frame []byte) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.WriteTimeout)
	defer cancel()
	if err := conn.Write(ctx, websocket.MessageText, frame); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// ping finds links that are dead without having said so.
func (r *relay) ping(ctx context.Context, conn *websocket.Conn) error {
	tick := time.NewTicker(r.cfg.PingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		wait, cancel := context.WithTimeout(ctx, r.cfg.PingTimeout)
		err := conn.Ping(wait)
		cancel()
		if err != nil {
			return fmt.Errorf("ping: %w", err)
		}
		r.touch(time.Now())
	}
}

// sleep waits until there may be something to do, or until next if it is not zero.
func (r *relay) sleep(ctx context.Context, next time.Time) error {
	var after <-chan time.Time
	if !next.IsZero() {
		timer := time.NewTimer(time.Until(next))
		defer timer.Stop()
		after = timer.C
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-r.wake:
	case <-after:
	}
	return nil
}

// pause waits before the next dial. Progress gets old meanwhile.
func (r *relay) pause(ctx context.Context, wait time.Duration) {
	until := time.Now().Add(wait)
	for now := time.Now(); now.Before(until); now = time.Now() {
		r.mu.Lock()
		r.outbox.expire(now)
		next := sooner(until, r.outbox.nextExpiry())
		r.mu.Unlock()
		if r.sleep(ctx, next) != nil {
			return
		}
	}
}

func (r *relay) setPhase(p linkPhase, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if p == linkUp {
		r.since, r.contact = now, now
		r.counts.links++
	}
	r.phase = p
}

// linkLost takes stock after a link, or the attempt to make one, and returns how
// long to wait before the next.
func (r *relay) linkLost(err error, now time.Time) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	var well time.Duration
	if r.phase == linkUp {
		well, r.since = now.Sub(r.since), now
	}
	r.phase, r.lastErr = linkDown, printable(err.Error())
	if isCut(err) {
		r.moveOn()
	}
	if errors.Is(err, errNoChallenge) && r.outbox.held {
		r.unchallenged()
	}
	r.auth.linkLost()
	r.outbox.linkLost()
	r.subsLost()
	wait := r.pace.wait(well, retry.ClassTransient)
	if errors.Is(err, errFlood) || errors.Is(err, errGarbage) {
		wait = leaveAlone
	}
	r.log.Warn("link down", "error", r.lastErr, "wait", wait)
	return wait
}

// unchallenged refuses the first event of the outbox if the relay keeps asking who we
// are without letting us say it.
func (r *relay) unchallenged() {
	it := r.outbox.queue[0]
	if it.unchallenged++; it.unchallenged >= maxUnchallenged {
		r.refuseFirst(it.answer + " (it gives no challenge)")
	}
}

// isCut reports whether we ended the link because of what the relay sent.
func isCut(err error) bool {
	return errors.Is(err, errFlood) || errors.Is(err, errGarbage) || errors.Is(err, errEndless)
}

// moveOn has the relay not asked again for what it sent before the link was cut:
// the same stored events would cut every link to come. What it had beside them is
// for other relays to deliver.
func (r *relay) moveOn() {
	for _, s := range r.subs {
		s.moveOn(r.contact)
	}
}

// subsLost prepares subscriptions for the next link; questions don't wait for it.
func (r *relay) subsLost() {
	for _, s := range slices.Clone(r.subs) {
		switch {
		case s.answer != nil:
			r.giveUp(s, fmt.Errorf("%w: %s", errDown, r.lastErr))
		case s.phase == subClosing:
			r.subs = slices.DeleteFunc(r.subs, func(other *subscription) bool { return other == s })
		default:
			s.linkLost(r.contact)
		}
	}
}

// stop tells everybody who waits that there is nothing to wait for.
func (r *relay) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase == linkUp {
		r.since = time.Now()
	}
	r.phase, r.lastErr = linkStopped, ErrStopped.Error()
	r.outbox.stop()
	r.subsLost()
}

func (r *relay) touch(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.contact = now
}
