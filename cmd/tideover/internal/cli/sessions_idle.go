package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/cmd/tideover/internal/session"
	"github.com/tideover/tideover/cmd/tideover/internal/watch"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/textfmt"
)

// notWatched is the state of a session that has not ended, but whose watch is not running.
const notWatched = "not-watched"

// unwatchedSession is a session whose watch is not running. Its data is read from the folder of the
// watch.
type unwatchedSession struct {
	hostedSession
	watch.About

	folder string
}

// unwatchedSessions returns the sessions in these folders that are not in found and whose socket
// accepts no connection. A watch that is starting or hangs does accept connections, so its session
// is left out.
func unwatchedSessions(ctx context.Context, folders []string, found []hostedSession) (list []unwatchedSession) {
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue // no watch has run yet
		}
		for _, e := range entries {
			path := filepath.Join(folder, e.Name())
			socket := filepath.Join(path, watch.Socket)
			if !e.IsDir() || slices.ContainsFunc(found, func(s hostedSession) bool { return s.At == socket }) || isListening(ctx, socket) {
				continue
			}
			if s, ok := readUnwatched(path); ok {
				list = append(list, s)
			}
		}
	}
	return list
}

// isListening reports whether a process accepts connections on the socket.
func isListening(ctx context.Context, socket string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(answerTimeout))
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}

// readUnwatched reads the state of a session from the folder of its watch. It returns false if
// folder is not the folder of a watch.
func readUnwatched(folder string) (s unwatchedSession, ok bool) {
	s = unwatchedSession{folder: folder, hostedSession: hostedSession{In: inWatch, At: folder}}
	s.Name, s.State = filepath.Base(folder), notWatched
	if text, err := os.ReadFile(filepath.Join(folder, session.AboutFile)); err == nil {
		ok = true
		_ = json.Unmarshal(text, &s.About) // on an error, the fields stay empty
	}
	if f, err := os.Open(filepath.Join(folder, trailFile)); err == nil {
		ok = true
		s.readTrail(f)
		_ = f.Close()
	}
	return s, ok
}

// maxTrail is the number of bytes at the end of an audit log that are read.
const maxTrail = 1 << 20

// readTrail replays the audit log, to find the last state of the session.
func (s *unwatchedSession) readTrail(f *os.File) {
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
			s.applyEvent(&e)
		}
	}
}

// trailEvent has the fields of an audit event that are needed here.
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

// applyEvent updates the state with an event of the audit log. The wait is over when an attempt
// starts, when the session is paused, resumed or ended, or when any other event is later than the
// end of the wait.
func (s *unwatchedSession) applyEvent(e *trailEvent) {
	s.Run = cmp.Or(e.Run, s.Run)
	switch e.Kind {
	case "waiting":
		s.Next, s.WaitBy, s.WaitFor = e.Until, e.By, cmp.Or(e.Error, e.Note)
	case "run-started", "attempt-started", "resumed", "paused":
		s.State, s.Reason, s.Error = notWatched, "", ""
		s.Next, s.WaitBy, s.WaitFor = nil, "", ""
	case "succeeded", "canceled", "gave-up":
		s.State, s.Reason, s.Error, s.Ended = endStates[e.Kind], e.Reason, e.Error, &e.Time
		s.Next, s.WaitBy, s.WaitFor = nil, "", ""
	default:
		if s.Next != nil && e.Time.After(*s.Next) {
			s.Next, s.WaitBy, s.WaitFor = nil, "", ""
		}
	}
}

// endStates maps each event that ends a session to the state of the session after it.
var endStates = map[string]string{"succeeded": "completed", "canceled": "stopped", "gave-up": "gave-up"}

// watchCommand returns the command line that continues the session.
func (s *unwatchedSession) watchCommand() string {
	command := s.Command
	if len(command) == 0 {
		command = []string{"COMMAND"}
	}
	start := []string{"tideover", "watch", "--name", s.Name}
	text := textfmt.ShellWords(slices.Concat(start, s.Flags, []string{"--"}, command))
	if from := cmp.Or(s.From, s.Dir); from != "" {
		text = "cd " + textfmt.ShellWord(from) + " && " + text
	}
	return text
}

// allSessions returns the sessions of all hosts, together with the sessions that are not watched.
// The latter are also returned as unwatched, with more details. It is not an error if no host is
// running, unless --server or $TIDEOVER_SERVER names one.
func (o *sessionsOptions) allSessions(ctx context.Context, hosts []*sessionHost) (all []hostedSession, unwatched []unwatchedSession, notes []string, err error) {
	all, notes, err = querySessions(ctx, hosts)
	if o.server != "" {
		return all, nil, notes, err
	}
	if hosts[0].away && o.serveWasHere() {
		notes = append(notes, "no serve at "+hosts[0].client.Where()+": sessions of serve are not listed")
	}
	if gone(err) && os.Getenv(client.ServerVar) == "" {
		err = nil
	}
	if err != nil {
		return all, nil, notes, err
	}
	unwatched = unwatchedSessions(ctx, watchFolders(o.config), all)
	for i := range unwatched {
		all = append(all, unwatched[i].hostedSession)
	}
	slices.SortStableFunc(all, compareSessions)
	return all, unwatched, notes, nil
}

// serveWasHere reports whether a server has stored runs in the data folder of the configuration.
func (o *sessionsOptions) serveWasHere() bool {
	_, data, err := configuredPaths(o.config)
	if err != nil || data == "" {
		return false
	}
	_, err = os.Stat(filepath.Join(data, "log.db"))
	return err == nil
}

// endedPhrases maps the final states of sessions to predicates for messages.
var endedPhrases = map[string]string{"gave-up": "gave up", "completed": "was completed", "stopped": "was stopped"}

// findRunningHost is findHost, except that the error for a session that is not watched contains the
// command that continues the session.
func (o *sessionsOptions) findRunningHost(ctx context.Context, hosts []*sessionHost, name string) (*sessionHost, error) {
	p, err := o.findHost(ctx, hosts, name)
	if err == nil || o.server != "" {
		return p, err
	}
	s, ok := o.unwatchedByName(ctx, name)
	if !ok {
		return nil, err
	}
	text, hint := "session "+name+" is not watched", "continue it with: "
	if s.State != notWatched {
		text = fmt.Sprintf("session %s %s and is not watched", name, cmp.Or(endedPhrases[s.State], "is "+s.State))
		hint = "start it again with: "
	}
	return nil, control.NewError(control.CodeNotFound, text, hint+s.watchCommand())
}

// unwatchedByName returns the session with this name that is not watched.
func (o *sessionsOptions) unwatchedByName(ctx context.Context, name string) (unwatchedSession, bool) {
	for _, s := range unwatchedSessions(ctx, watchFolders(o.config), nil) {
		if s.Name == name {
			return s, true
		}
	}
	return unwatchedSession{}, false
}

// resumeHints returns a line for each session that is not watched, with the command to continue it.
func resumeHints(list []unwatchedSession) (lines []string) {
	for i := range list {
		if list[i].State == notWatched {
			lines = append(lines, "continue "+list[i].Name+" with: "+list[i].watchCommand())
		}
	}
	return lines
}

// renderUnwatched returns the text of sessions show for a session that is not watched.
func renderUnwatched(st *unwatchedSession, s *screen) []string {
	p := &details{screen: s}
	p.line("%s  %s  %s", p.paint("1", visible(st.Name)), p.paint(sessionColour(st.State), visible(st.State)), p.paint("2", visible("watch at "+st.folder)))
	p.field("next", p.moment(st.Next))
	p.field("set by", st.WaitSetter())
	p.field("because", st.WaitFor)
	p.field("gave up", st.Reason)
	p.field("error", unlessEqual(st.Error, st.WaitFor))
	p.field("ended", p.moment(st.Ended))
	p.field("run", st.Run)
	next := "start again"
	if st.State == notWatched {
		next = "continue"
	}
	p.field(next, st.watchCommand())
	p.field("remove", "tideover sessions rm "+textfmt.ShellWord(st.Name))
	return p.lines
}
