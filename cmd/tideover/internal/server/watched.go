package server

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/watch"
	"github.com/tideover/tideover/internal/console/control"
)

// watchTimeout is how long a `tideover watch` may take to answer. The page does not show the
// sessions of a slower one.
const watchTimeout = 2 * time.Second

// inWatch is the value of Status.In for a session that a `tideover watch` runs. If the server has a
// session of the same name, the page shows the one of the watch as "watch:NAME".
const inWatch = "watch"

// pageSessions manages the sessions that the page shows: those of this server, and those of every
// `tideover watch` of the same user.
type pageSessions struct {
	*session.Manager        // manages the sessions of this server
	data             string // data folder of this server
}

// watched is a session of a watch.
type watched struct {
	session.Status
	socket string // of the watch
}

// List returns all sessions, sorted by name.
func (p *pageSessions) List(ctx context.Context) ([]session.Status, error) {
	list, err := p.Manager.List(ctx)
	if err != nil {
		return nil, err
	}
	own := p.Names()
	for _, w := range p.watched(ctx) {
		if slices.Contains(own, w.Name) {
			w.Name = inWatch + ":" + w.Name
		}
		list = append(list, w.Status)
	}
	slices.SortStableFunc(list, func(a, b session.Status) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// watched returns the sessions of all watches. It asks the watches concurrently.
func (p *pageSessions) watched(ctx context.Context) (list []watched) {
	ctx, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	sockets := watch.Sockets(watch.Folders(p.data))
	found := make([][]session.Status, len(sockets))
	var requests sync.WaitGroup
	for i, socket := range sockets {
		requests.Go(func() {
			_ = callWatch(socket, "", func(c *client.Client) (err error) { // a watch that does not answer is not shown
				found[i], err = c.Sessions(ctx)
				return err
			})
		})
	}
	requests.Wait()
	for i, sessions := range found {
		for _, s := range sessions {
			s.In = inWatch
			list = append(list, watched{s, sockets[i]})
		}
	}
	return list
}

// callWatch calls f with a client of the watch that listens on the socket. by names the caller in
// the history of runs.
func callWatch(socket, by string, f func(*client.Client) error) error {
	c, err := client.Dial(client.Target{Server: "unix:" + socket, By: by})
	if err != nil {
		return err
	}
	defer c.Close()
	return f(c)
}

// owner returns the session with the name if a watch runs it, or nil if this server runs it.
// Otherwise it returns the error for an unknown session.
func (p *pageSessions) owner(ctx context.Context, name string) (*watched, error) {
	if slices.Contains(p.Names(), name) {
		return nil, nil //nolint:nilnil // nil means this server
	}
	own := strings.TrimPrefix(name, inWatch+":")
	for _, w := range p.watched(ctx) {
		if w.Name == own {
			return &w, nil
		}
	}
	_, err := p.Manager.Get(ctx, name) // the error lists the known sessions
	return nil, err
}

// do calls local if this server runs the session, else remote with a client of the watch that runs
// it.
func (p *pageSessions) do(ctx context.Context, name, by string, local func() error, remote func(c *client.Client, w *watched) error) error {
	w, err := p.owner(ctx, name)
	switch {
	case err != nil:
		return err
	case w == nil:
		return local()
	}
	err = callWatch(w.socket, by, func(c *client.Client) error { return remote(c, w) })
	if problem, ok := errors.AsType[*control.Error](err); ok && problem.Code == control.CodeState {
		return errors.Join(session.ErrState, err)
	}
	return err
}

// Get returns a session with the last lines of its output.
func (p *pageSessions) Get(ctx context.Context, name string) (st session.Status, err error) {
	err = p.do(ctx, name, "", func() (err error) {
		st, err = p.Manager.Get(ctx, name)
		return err
	}, func(c *client.Client, w *watched) (err error) {
		st, err = c.Session(ctx, w.Name)
		st.Name, st.In = name, inWatch
		return err
	})
	return st, err
}

// ReadOutput returns the output of a session after a position.
func (p *pageSessions) ReadOutput(ctx context.Context, name, after string) (part session.OutputPart, err error) {
	err = p.do(ctx, name, "", func() (err error) {
		part, err = p.Manager.ReadOutput(ctx, name, after)
		return err
	}, func(c *client.Client, w *watched) (err error) {
		part, err = c.SessionOutput(ctx, w.Name, after)
		return err
	})
	return part, err
}

// Tonight returns when a session would continue if it were paused for tonight.
func (p *pageSessions) Tonight(name string) time.Time {
	ctx, cancel := context.WithTimeout(context.Background(), watchTimeout)
	defer cancel()
	if w, err := p.owner(ctx, name); err == nil && w != nil && w.Quiet != "" {
		if hours, err := session.ParseHours(w.Quiet); err == nil {
			return hours.End(time.Now())
		}
	}
	return p.Manager.Tonight(name)
}

// change applies an operation without arguments to a session.
func (p *pageSessions) change(ctx context.Context, name, by string, local func(ctx context.Context, name, by string) error,
	remote func(c *client.Client, ctx context.Context, name string) (session.Status, error),
) error {
	return p.do(ctx, name, by, func() error { return local(ctx, name, by) }, func(c *client.Client, w *watched) error {
		_, err := remote(c, ctx, w.Name)
		return err
	})
}

// PauseUntil pauses a session until a time; zero means until Resume.
func (p *pageSessions) PauseUntil(ctx context.Context, name string, until time.Time, by string) error {
	local := func() error { return p.Manager.PauseUntil(ctx, name, until, by) }
	return p.do(ctx, name, by, local, func(c *client.Client, w *watched) error {
		_, err := c.PauseSession(ctx, w.Name, admin.SessionPause{Until: until})
		return err
	})
}

// Resume continues a paused session.
func (p *pageSessions) Resume(ctx context.Context, name, by string) error {
	return p.change(ctx, name, by, p.Manager.Resume, (*client.Client).ResumeSession)
}

// RetryNow ends the wait of a session, so that its next attempt starts now.
func (p *pageSessions) RetryNow(ctx context.Context, name, by string) error {
	return p.change(ctx, name, by, p.Manager.RetryNow, (*client.Client).RetrySession)
}

// Stop ends a session.
func (p *pageSessions) Stop(ctx context.Context, name, by string) error {
	return p.do(ctx, name, by, func() error { return p.Manager.Stop(ctx, name, by) }, func(c *client.Client, w *watched) error {
		_, err := c.StopSession(ctx, w.Name, false)
		return err
	})
}

// Reset sets the used attempts and windows of a session to zero.
func (p *pageSessions) Reset(ctx context.Context, name, by string) error {
	return p.change(ctx, name, by, p.Manager.Reset, (*client.Client).ResetSession)
}
