package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/watch"
)

// answerTimeout is how long a process that keeps sessions may take to answer, unless
// --timeout says otherwise.
const answerTimeout = duration(5 * time.Second)

// The kinds of processes that keep sessions.
const (
	inServe = "serve"
	inWatch = "watch"
)

// place is a process that keeps sessions.
type place struct {
	kind    string
	client  *client.Client
	timeout time.Duration
	instead error // why it is not where the configuration says; nil if it is
	away    bool  // nobody is there
}

// located is a session, and where it is kept.
type located struct {
	session.Status
	In string `json:"in"` // serve or watch
	At string `json:"at"` // the socket, or the address

	place *place
}

// watchFolders returns the folders in which each watch has one with its socket: at
// the default place, and where the configuration that is named, or found here, says. That it
// can't be read is said with the places.
func watchFolders(file string) []string {
	_, data, err := whereabouts(file)
	if err != nil {
		data = ""
	}
	return watch.Folders(data)
}

// places returns everybody who may keep sessions: the server first, and the
// watches. A server that is named is the only one. If the configuration can't be
// read, those at the default place are asked, which the survey says.
func (o *sessionsOptions) places() ([]*place, error) {
	var wrong error
	if o.server == "" {
		_, _, wrong = whereabouts(o.config)
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
	list := []*place{{inServe, c, time.Duration(o.timeout), wrong, false}}
	for _, path := range watch.Sockets(watchFolders(o.config)) {
		if path == c.Where() {
			list[0].kind = inWatch
		}
		if o.server != "" || path == c.Where() {
			continue
		}
		w, err := client.Dial(client.Target{Server: "unix:" + path, By: whoami()})
		if err != nil {
			return nil, err
		}
		list = append(list, &place{inWatch, w, time.Duration(o.timeout), nil, false})
	}
	return list, nil
}

func closePlaces(list []*place) {
	for _, p := range list {
		p.client.Close()
	}
}

// silence is why nobody waits any longer for an answer.
type silence time.Duration

func (s silence) Error() string { return fmt.Sprintf("silent for %v", time.Duration(s)) }

// sessions asks for the sessions of the place.
func (p *place) sessions(ctx context.Context) ([]located, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, silence(p.timeout))
	defer cancel()
	all, err := p.client.Sessions(ctx)
	if _, silent := errors.AsType[silence](err); silent {
		err = &client.UnreachableError{Where: p.client.Where(), Err: err}
	}
	list := make([]located, len(all))
	for i, s := range all {
		list[i] = p.locate(s)
	}
	return list, err
}

func (p *place) locate(s session.Status) located { return located{s, p.kind, p.client.Where(), p} }

// note says why the place did not answer.
func (p *place) note(err error) string {
	if u, ok := errors.AsType[*client.UnreachableError](err); ok {
		err = u.Err
	}
	return fmt.Sprintf("%s at %s: %v", p.kind, p.client.Where(), err)
}

// gone reports whether there is nobody at a place: a socket that is left over, or
// none.
func gone(err error) bool {
	_, unreachable := errors.AsType[*client.UnreachableError](err)
	return unreachable && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, fs.ErrNotExist))
}

// survey asks all places at once. Where nobody is any more there are no sessions;
// places that can't say are in the notes. It is an error if nobody has answered.
func survey(ctx context.Context, places []*place) (found []located, notes []string, err error) {
	lists, errs := make([][]located, len(places)), make([]error, len(places))
	var asked sync.WaitGroup
	for i, p := range places {
		asked.Go(func() { lists[i], errs[i] = p.sessions(ctx) })
	}
	asked.Wait()
	if !slices.Contains(errs, nil) {
		err, errs[0] = errs[0], nil // what matters is that the server did not
	}
	for i, p := range places {
		if p.instead != nil {
			notes = append(notes, p.instead.Error())
		}
		p.away = gone(errs[i]) || i == 0 && gone(err)
		if errs[i] != nil && !p.away {
			notes = append(notes, p.note(errs[i]))
		}
		found = append(found, lists[i]...)
	}
	slices.SortFunc(found, func(a, b located) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.In, b.In), cmp.Compare(a.At, b.At))
	})
	return found, notes, err
}

// survey is survey for a verb, which says what is in the notes.
func (o *sessionsOptions) survey(ctx context.Context, places []*place) ([]located, error) {
	found, notes, err := survey(ctx, places)
	for _, n := range notes {
		o.warn("%s", n)
	}
	if gone(err) && o.server == "" {
		err = fmt.Errorf("%w; no tideover watch answers either", err)
	}
	return found, err
}

// find returns who keeps the session of the name. It asks nobody if only one is
// meant.
func (o *sessionsOptions) find(ctx context.Context, places []*place, name string) (*place, error) {
	if o.server != "" {
		return places[0], nil
	}
	all, err := o.survey(ctx, places)
	if err != nil {
		return nil, err
	}
	var names, candidates []string
	var kept *place
	for _, s := range all {
		names = append(names, s.Name)
		if s.Name == name {
			kept, candidates = s.place, append(candidates, s.In+" at "+s.At)
		}
	}
	switch len(candidates) {
	case 1:
		return kept, nil
	case 0:
		for _, s := range idleSessions(ctx, watchFolders(o.config), all) {
			names = append(names, s.Name)
		}
		slices.Sort(names)
		return nil, unknownSession(name, slices.Compact(names))
	}
	return nil, &control.Error{
		Status: http.StatusConflict, Code: control.CodeAmbiguous, Message: fmt.Sprintf("%q is the name of %d sessions", name, len(candidates)),
		Hint: "say which one with --server unix:PATH", Candidates: candidates,
	}
}

func unknownSession(name string, known []string) error {
	p := &control.Error{Status: http.StatusNotFound, Code: control.CodeNotFound, Message: fmt.Sprintf("%v: %q", session.ErrUnknown, name), Hint: "there are none"}
	switch len(known) {
	case 0:
	case 1:
		p.Hint = "there is " + known[0]
	default:
		p.Hint = "there are " + strings.Join(known, ", ")
	}
	return p
}
