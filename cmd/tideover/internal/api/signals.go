package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/console/control"
)

// signalsHandler handles signals to runs, answers to their questions, and callback URLs.
type signalsHandler struct {
	runs      *control.Runs
	callbacks *admin.Callbacks
}

// readSignal reads the payload and the id of a signal. The id is in the header Idempotency-Key or in the
// parameter id.
func (r *request) readSignal() (s control.Signal, err error) {
	q := r.query("id")
	if q.err != nil {
		return s, q.err
	}
	s.Name, s.ID = r.values["name"], q.values["id"]
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		if s.ID != "" && s.ID != key {
			return s, control.Invalid("id", "differs from the header Idempotency-Key")
		}
		s.ID = key
	}
	s.Data, err = r.readJSON()
	return s, err
}

func (h signalsHandler) signal(r *request) (any, error) {
	s, err := r.readSignal()
	if err != nil {
		return nil, err
	}
	id, err := h.runs.Find(r.Context(), r.id)
	if err != nil {
		return nil, err
	}
	return h.runs.Signal(r.Context(), id, s, httpserver.CallerOf(r.Context()).Name)
}

func (h signalsHandler) signalKey(r *request) (any, error) {
	s, err := r.readSignal()
	if err != nil {
		return nil, err
	}
	to := engine.RunKey{Workflow: r.values["workflow"], Key: r.values["key"]}
	return h.runs.SignalKey(r.Context(), to, s, httpserver.CallerOf(r.Context()).Name)
}

func (h signalsHandler) answer(r *request) (any, error) {
	var a control.Reply
	if _, err := r.read("choice", &a.Choice, "words", &a.Words); err != nil {
		return nil, err
	}
	id, err := h.runs.Find(r.Context(), r.id)
	if err == nil {
		err = h.runs.Answer(r.Context(), id, r.values["question"], a, httpserver.CallerOf(r.Context()).Name)
	}
	if err != nil {
		return nil, err
	}
	info, err := h.runs.Get(r.Context(), id)
	if err != nil {
		return nil, err
	}
	return control.NewOutcome(info), nil
}

func (h signalsHandler) callback(r *request) (any, error) {
	expires := control.Span(admin.DefaultExpiry)
	if _, err := r.read("expires", &expires); err != nil {
		return nil, err
	}
	id, err := h.runs.Find(r.Context(), r.id)
	if err != nil {
		return nil, err
	}
	c, err := h.callbacks.New(r.Context(), id, r.values["name"], time.Duration(expires))
	if err != nil {
		return nil, err
	}
	return reply{http.StatusCreated, c}, nil
}

// accept handles the request of another system to a callback URL. Such a request has no token.
func (h signalsHandler) accept(r *request) (any, error) {
	err := h.callbacks.Accept(r.Context(), r.values["token"], func() (json.RawMessage, error) {
		data, err := io.ReadAll(http.MaxBytesReader(r.w, r.Body, admin.MaxCallbackBody))
		if _, tooLarge := errors.AsType[*http.MaxBytesError](err); err != nil && !tooLarge {
			err = control.Invalid("", "the body can't be read: %v", err)
		}
		return data, err
	})
	if err != nil {
		return nil, err
	}
	return map[string]bool{"ok": true}, nil
}
