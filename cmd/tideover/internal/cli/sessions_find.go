package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/watch"
	"github.com/tideover/tideover/internal/console/control"
)

// answerTimeout is the default of --timeout: how long a server or a watch may take to answer.
const answerTimeout = duration(5 * time.Second)

// The kinds of processes that run sessions.
const (
	inServe = "serve"
	inWatch = "watch"
)

// sessionHost is a process that runs sessions: a server (tideover serve) or a watch (tideover
// watch).
type sessionHost struct {
	kind      string // inServe or inWatch
	client    *client.Client
	timeout   time.Duration // how long to wait for an answer
	configErr error         // why the configuration, and so its address, could not be read; nil if it could
	away      bool          // no process listens at the address
}

// hostedSession is a session with the process that runs it.
type hostedSession struct {
	session.Status
	In string `json:"in"` // serve or watch
	At string `json:"at"` // the socket or the address of the process

	host *sessionHost
}

// watchFolders returns the folders that hold the state of watches: the default folder, and the
// folder that the configuration file sets. If the file can't be read, it returns only the default
// folder; sessionHosts reports the error.
func watchFolders(file string) []string {
	_, data, err := configuredPaths(file)
	if err != nil {
		data = ""
	}
	return watch.Folders(data)
}

// sessionHosts returns the server, followed by all watches. With --server it returns only the
// process at that address. If the configuration can't be read, it returns the server at the default
// address and sets its configErr.
func (o *sessionsOptions) sessionHosts() ([]*sessionHost, error) {
	var wrong error
	if o.server == "" {
		_, _, wrong = configuredPaths(o.config)
	}
	c, err := o.dial()
	if _, lost := errors.AsType[*unlocatedError](err); lost {
		var target client.Target
		if target, err = client.TargetOf("", os.Getenv); err == nil {
			c, err = o.dialTo(target)
		}
	}
	if err != nil {
		return nil, err
	}
	list := []*sessionHost{{inServe, c, time.Duration(o.timeout), wrong, false}}
	for _, path := range watch.Sockets(watchFolders(o.config)) {
		if path == c.Where() {
			list[0].kind = inWatch
		}
		if o.server != "" || path == c.Where() {
			continue
		}
		w, err := client.Dial(client.Target{Server: "unix:" + path, By: httpserver.LocalName()})
		if err != nil {
			return nil, err
		}
		list = append(list, &sessionHost{inWatch, w, time.Duration(o.timeout), nil, false})
	}
	return list, nil
}

func closeHosts(list []*sessionHost) {
	for _, p := range list {
		p.client.Close()
	}
}

// silentError is the error of a host that does not answer within this time.
type silentError time.Duration

func (s silentError) Error() string { return fmt.Sprintf("no answer for %v", time.Duration(s)) }

// sessions asks the process for its sessions.
func (p *sessionHost) sessions(ctx context.Context) ([]hostedSession, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, silentError(p.timeout))
	defer cancel()
	all, err := p.client.Sessions(ctx)
	if _, silent := errors.AsType[silentError](err); silent {
		err = &client.UnreachableError{Where: p.client.Where(), Err: err}
	}
	list := make([]hostedSession, len(all))
	for i, s := range all {
		list[i] = p.locate(s)
	}
	return list, err
}

func (p *sessionHost) locate(s session.Status) hostedSession {
	return hostedSession{s, p.kind, p.client.Where(), p}
}

// describeError returns a message that names the process and the reason why it did not answer.
func (p *sessionHost) describeError(err error) string {
	if u, ok := errors.AsType[*client.UnreachableError](err); ok {
		err = u.Err
	}
	return fmt.Sprintf("%s at %s: %v", p.kind, p.client.Where(), err)
}

// gone reports whether the error means that no process listens: the socket does not exist, or its
// process has ended.
func gone(err error) bool {
	return unreachable(err) &&
		(errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, fs.ErrNotExist))
}

// unreachable reports whether the server could not be reached.
func unreachable(err error) bool {
	_, ok := errors.AsType[*client.UnreachableError](err)
	return ok
}

// querySessions asks all hosts at once for their sessions. It skips a host whose process has ended.
// For each other host that fails, it returns a note with the reason. It returns an error if no host
// has answered.
func querySessions(ctx context.Context, hosts []*sessionHost) (found []hostedSession, notes []string, err error) {
	lists, errs := make([][]hostedSession, len(hosts)), make([]error, len(hosts))
	var asked sync.WaitGroup
	for i, p := range hosts {
		asked.Go(func() { lists[i], errs[i] = p.sessions(ctx) })
	}
	asked.Wait()
	if !slices.Contains(errs, nil) {
		err, errs[0] = errs[0], nil // the first host is the server: its error matters most
	}
	for i, p := range hosts {
		if p.configErr != nil {
			notes = append(notes, p.configErr.Error())
		}
		p.away = gone(errs[i]) || i == 0 && gone(err)
		if errs[i] != nil && !p.away {
			notes = append(notes, p.describeError(errs[i]))
		}
		found = append(found, lists[i]...)
	}
	slices.SortFunc(found, compareSessions)
	return found, notes, err
}

func compareSessions(a, b hostedSession) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.In, b.In), cmp.Compare(a.At, b.At))
}

// querySessions calls the function querySessions and prints the notes as warnings.
func (o *sessionsOptions) querySessions(ctx context.Context, hosts []*sessionHost) ([]hostedSession, error) {
	found, notes, err := querySessions(ctx, hosts)
	for _, n := range notes {
		o.warn("%s", n)
	}
	if gone(err) && o.server == "" {
		err = fmt.Errorf("%w; no tideover watch is running either", err)
	}
	return found, err
}

// findHost returns the host of the session with this name. With --server it returns the host at
// that address, without asking it for the session.
func (o *sessionsOptions) findHost(ctx context.Context, hosts []*sessionHost, name string) (*sessionHost, error) {
	if o.server != "" {
		return hosts[0], nil
	}
	all, err := o.querySessions(ctx, hosts)
	if err != nil {
		return nil, err
	}
	var names, candidates []string
	var kept *sessionHost
	for _, s := range all {
		names = append(names, s.Name)
		if s.Name == name {
			kept, candidates = s.host, append(candidates, s.In+" at "+s.At)
		}
	}
	switch len(candidates) {
	case 1:
		return kept, nil
	case 0:
		for _, s := range unwatchedSessions(ctx, watchFolders(o.config), all) {
			names = append(names, s.Name)
		}
		slices.Sort(names)
		return nil, unknownSession(name, slices.Compact(names))
	}
	text := fmt.Sprintf("%q matches %d sessions", name, len(candidates))
	problem := control.NewError(control.CodeAmbiguous, text, "select one with --server unix:PATH")
	problem.Candidates = candidates
	return nil, problem
}

func unknownSession(name string, known []string) error {
	hint := "the sessions are " + strings.Join(known, ", ")
	switch len(known) {
	case 0:
		hint = "there are no sessions"
	case 1:
		hint = "the only session is " + known[0]
	}
	return control.NewError(control.CodeNotFound, fmt.Sprintf("%v: %q", session.ErrUnknown, name), hint)
}
