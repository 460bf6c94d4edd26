package chaos

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
)

// controlPath is where a server is asked about itself.
const controlPath = "/_chaos/"

// newControl returns the endpoint for tests and people. Only this machine may use
// it, and no page in a browser that comes from somewhere else.
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
			refuse(w, http.StatusForbidden, "only the machine that it runs on may ask this")
			return
		}
		guarded.ServeHTTP(w, r)
	})
}

// setSpec replaces the rules by those in the body.
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
