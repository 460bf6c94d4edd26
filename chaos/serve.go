package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
	"time"
)

// The reasons for which an exchange has no complete answer.
var (
	errGone  = errors.New("the client is gone")
	errEnd   = errors.New("the server was closed")
	errFault = errors.New("the connection was ended on purpose")
)

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, controlPath) {
		s.control.ServeHTTP(w, r)
		return
	}
	v := s.begin(w, r)
	err := errEnd
	defer func() { s.finish(v, err) }()
	if err = v.handle(); err != nil {
		// Returning would make net/http complete the answer properly.
		panic(http.ErrAbortHandler)
	}
}

// begin chooses the answer to a request and counts the request.
func (s *Server) begin(w http.ResponseWriter, r *http.Request) *exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	v := &exchange{server: s, state: s.state, verdict: s.state.decide(r.Method, r.URL.Path, r.Header, now), w: w, r: r, upload: newUpload()}
	v.Proto = r.Proto
	s.stats.count(v.Arrival)
	s.handlers++
	s.active++
	s.stats.Peak = max(s.stats.Peak, s.active)
	if s.options.observer != nil {
		s.options.observer(v.Arrival)
	}
	return v
}

// release ends the use of the rule's capacity by the request. It is called before the
// client can see the end of the answer, so that a client that sends one request at a time
// never counts as two.
func (s *Server) release(v *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !v.left {
		v.left = true
		v.state.release(v.verdict)
		s.active--
	}
}

// finish ends an exchange. err says why the answer is not complete, or is nil.
func (s *Server) finish(v *exchange, err error) {
	s.release(v)
	s.mu.Lock()
	defer s.mu.Unlock()
	if errors.Is(err, errGone) && s.state == v.state {
		s.stats.Gone++
	}
	s.handlers--
	s.idle.Broadcast()
}

// pause waits for d. It returns an error if the client disconnects or the server is
// closed.
func (s *Server) pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return errGone
	case <-s.ctx.Done():
		return errEnd
	}
}

// hang waits until the client disconnects or the server is closed.
func (s *Server) hang(ctx context.Context) error {
	return s.pause(ctx, math.MaxInt64)
}

// connectionError returns errEnd or errGone for an error of reading or writing.
func (s *Server) connectionError(err error) error {
	switch {
	case err == nil:
		return nil
	case s.ctx.Err() != nil:
		return errEnd
	}
	return errGone
}

// controlPath is the path prefix of the control endpoint.
const controlPath = "/_chaos/"

// newControl returns the handler of the control endpoint. It rejects requests from other
// machines, and cross-origin requests of browsers.
func (s *Server) newControl() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+controlPath+"stats", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, s.Stats()) })
	mux.HandleFunc("GET "+controlPath+"spec", func(w http.ResponseWriter, _ *http.Request) { replyText(w, s.Spec().String()) })
	mux.HandleFunc("POST "+controlPath+"spec", s.setSpec)
	mux.HandleFunc("POST "+controlPath+"reset", func(w http.ResponseWriter, _ *http.Request) {
		s.Reset()
		replyText(w, s.Spec().String())
	})
	mux.HandleFunc(controlPath, func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, "want GET "+controlPath+"stats, GET or POST "+controlPath+"spec, POST "+controlPath+"reset")
	})
	guarded := new(http.CrossOriginProtection).Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			refuse(w, http.StatusForbidden, "the control endpoint accepts only requests from this machine")
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// setSpec replaces the rules by the spec in the body.
func (s *Server) setSpec(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxText))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, err.Error())
		return
	}
	spec, err := s.options.parse(r.Header.Get("Content-Type"), text)
	if err == nil {
		err = s.Set(spec)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	replyText(w, spec.String())
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
}

func replyText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, text+"\n")
}

func refuse(w http.ResponseWriter, status int, why string) {
	reply(w, status, map[string]string{"error": why})
}
