package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/watch"
)

// notWatched is the state of a session that could go on, but whose watch does not
// run.
const notWatched = "not-watched"

// The files that a watch leaves in its folder.
const (
	aboutFile = watch.AboutFile
	trailFile = "audit.jsonl"
)

// idle is a session whose watch does not run. What is known of it is in its folder.
type idle struct {
	located
	watch.About

	folder string
}

// idleSessions returns the sessions that have a folder, and nobody who answers in
// it. Who only begins or hangs does answer: to connect is enough.
func idleSessions(ctx context.Context, folders []string, found []located) (list []idle) {
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue // none has ever run
		}
		for _, e := range entries {
			path := filepath.Join(folder, e.Name())
			socket := filepath.Join(path, watch.Socket)
			if !e.IsDir() || slices.ContainsFunc(found, func(s located) bool { return s.At == socket }) || answers(ctx, socket) {
				continue
			}
			if s, ok := readIdle(path); ok {
				list = append(list, s)
			}
		}
	}
	return list
}

// answers reports whether somebody listens.
func answers(ctx context.Context, socket string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(answerTimeout))
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// readIdle reads what a watch has left. A folder without it is none of a session.
func readIdle(folder string) (s idle, ok bool) {
	s = idle{folder: folder, located: located{In: inWatch, At: folder}}
	s.Name, s.State = filepath.Base(folder), notWatched
	if text, err := os.ReadFile(filepath.Join(folder, aboutFile)); err == nil {
		ok = true
		_ = json.Unmarshal(text, &s.About) // what can't be read is not shown
	}
	if f, err := os.Open(filepath.Join(folder, trailFile)); err == nil {
		ok = true
		s.read(f)
		_ = f.Close()
	}
	return s, ok
}

// maxTrail is how much of the end of a trail is read.
const maxTrail = 1 << 20

// read follows the trail of a session to where it was when its watch ended.
func (s *idle) read(f *os.File) {
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return
	} else if at := info.Size() - maxTrail; at > 0 {
		if _, err := f.Seek(at, io.SeekStart); err != nil {
			return
		}
	}
	text, _ := io.ReadAll(io.LimitReader(f, maxTrail))
	for line := range bytes.SplitSeq(text, []byte("\n")) {
		var e trailEvent
		if json.Unmarshal(line, &e) == nil && e.Name == session.Prefix+s.Name {
			s.follow(&e)
		}
	}
}

// trailEvent is what matters of an event in a trail.
type trailEvent struct {
	Kind   string     `json:"kind"`
	Time   time.Time  `json:"time"`
	Name   string     `json:"name"`
	Until  *time.Time `json:"until"`
	By     string     `json:"delay_by"`
	Reason string     `json:"reason"`
	Error  string     `json:"error"`
	Note   string     `json:"note"`
	Run    string     `json:"run"`
}

// follow takes an event into account. A wait is over with the next thing that
// happens, unless that is nothing but a word about it.
func (s *idle) follow(e *trailEvent) {
	s.Run = cmp.Or(e.Run, s.Run)
	switch e.Kind {
	case "waiting":
		s.Next, s.WaitBy, s.WaitFor = e.Until, e.By, cmp.Or(e.Error, e.Note)
	case "run-started", "attempt-started", "resumed", "paused":
		s.State, s.Reason, s.Error = notWatched, "", ""
		s.Next, s.WaitBy, s.WaitFor = nil, "", ""
	case "succeeded":
		s.end("completed", e)
	case "canceled":
		s.end("stopped", e)
	case "gave-up":
		s.end("gave-up", e)
	default:
		if s.Next != nil && e.Time.After(*s.Next) {
			s.Next = nil
		}
	}
}

func (s *idle) end(state string, e *trailEvent) {
	s.State, s.Reason, s.Error, s.Ended = state, e.Reason, e.Error, &e.Time
	s.Next, s.WaitBy, s.WaitFor = nil, "", ""
}

// goOn returns how the session is watched again.
func (s *idle) goOn() string {
	words := append([]string{"tideover", "watch", "--name", s.Name}, s.Flags...)
	words = append(words, "--")
	for i, w := range words {
		words[i] = shellWord(w)
	}
	for _, w := range s.Command {
		words = append(words, shellWord(w))
	}
	if len(s.Command) == 0 {
		words = append(words, "COMMAND")
	}
	text := strings.Join(words, " ")
	if from := cmp.Or(s.From, s.Dir); from != "" {
		text = "cd " + shellWord(from) + " && " + text
	}
	return text
}

// shellWord writes a word as a shell reads it.
func shellWord(word string) string {
	plain := func(c rune) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("-_./:=,@%+", c)
	}
	if word != "" && !strings.ContainsFunc(word, func(c rune) bool { return !plain(c) }) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// everything is survey, and the sessions that nobody watches. That there is nobody
// to ask is no error, unless somebody was named.
func (o *sessionsOptions) everything(ctx context.Context, places []*place) (all []located, unwatched []idle, notes []string, err error) {
	all, notes, err = survey(ctx, places)
	if o.server != "" {
		return all, nil, notes, err
	}
	if places[0].away && o.serveWasHere() {
		notes = append(notes, "no serve at "+places[0].client.Where()+": its sessions are not listed")
	}
	if gone(err) && os.Getenv(client.ServerVar) == "" {
		err = nil
	}
	if err != nil {
		return all, nil, notes, err
	}
	unwatched = idleSessions(ctx, watchFolders(o.config), all)
	for i := range unwatched {
		all = append(all, unwatched[i].located)
	}
	slices.SortStableFunc(all, func(a, b located) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.In, b.In), cmp.Compare(a.At, b.At))
	})
	return all, unwatched, notes, nil
}

// serveWasHere reports whether a server has ever kept something where one would be.
func (o *sessionsOptions) serveWasHere() bool {
	_, data, err := whereabouts(o.config)
	if err != nil || data == "" {
		return false
	}
	_, err = os.Stat(filepath.Join(data, "log.db"))
	return err == nil
}

// overWords are how the states of sessions that are over are told.
var overWords = map[string]string{"gave-up": "gave up", "completed": "was completed", "stopped": "was stopped"}

// keeper is find, which knows of sessions that nobody watches.
func (o *sessionsOptions) keeper(ctx context.Context, places []*place, name string) (*place, error) {
	p, err := o.find(ctx, places, name)
	if err == nil || o.server != "" {
		return p, err
	}
	if s, ok := o.idleNamed(ctx, name); ok {
		problem := &control.Error{Status: http.StatusNotFound, Code: control.CodeNotFound, Message: fmt.Sprintf("session %s is not watched", name)}
		problem.Hint = "it goes on with: " + s.goOn()
		if s.State != notWatched {
			problem.Message = fmt.Sprintf("session %s %s, and is not watched", name, cmp.Or(overWords[s.State], "is "+s.State))
			problem.Hint = "it begins anew with: " + s.goOn()
		}
		return nil, problem
	}
	return nil, err
}

// idleNamed returns the session of the name that nobody watches.
func (o *sessionsOptions) idleNamed(ctx context.Context, name string) (idle, bool) {
	for _, s := range idleSessions(ctx, watchFolders(o.config), nil) {
		if s.Name == name {
			return s, true
		}
	}
	return idle{}, false
}

// hints say how sessions go on that nobody watches.
func hints(list []idle) (lines []string) {
	for i := range list {
		if list[i].State == notWatched {
			lines = append(lines, list[i].Name+" goes on with: "+list[i].goOn())
		}
	}
	return lines
}

// renderIdle shows a session that nobody watches.
func renderIdle(st *idle, s *screen) string {
	p := &portrait{screen: s}
	p.line("%s  %s  %s", p.paint("1", visible(st.Name)), p.paint(sessionColour(st.State), visible(st.State)), p.paint("2", visible("watch at "+st.folder)))
	p.fact("next", p.moment(st.Next))
	p.fact("set by", setBy(st.WaitBy))
	p.fact("because", st.WaitFor)
	p.fact("gave up", st.Reason)
	p.fact("error", other(st.Error, st.WaitFor))
	p.fact("ended", p.moment(st.Ended))
	p.fact("run", st.Run)
	if st.State == notWatched {
		p.fact("goes on", st.goOn())
	} else {
		p.fact("anew", st.goOn())
	}
	p.fact("remove", "tideover sessions rm "+shellWord(st.Name))
	return p.String()
}
