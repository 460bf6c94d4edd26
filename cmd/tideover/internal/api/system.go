package api

import (
	"context"
	_ "embed"
	"net/http"
	"strconv"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
)

// openapi is the description of the API. docs/openapi.yaml is a copy: a module can embed only
// files below it.
//
//go:embed openapi.yaml
var openapi string

// systemHandler answers requests about the server itself.
type systemHandler struct{ system *control.System }

func (h systemHandler) openapi(w http.ResponseWriter, _ *http.Request, _ string) error {
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Content-Length", strconv.Itoa(len(openapi)))
	_, _ = w.Write([]byte(openapi)) // the client may have disconnected
	return nil
}

func (h systemHandler) health(w http.ResponseWriter, _ *http.Request, _ string) error {
	health, status := h.system.Health(), http.StatusOK
	if !health.OK {
		status = http.StatusServiceUnavailable
	}
	return answer(w, status, health)
}

func (h systemHandler) status(ctx context.Context, _ string) (any, error) {
	return h.system.Status(ctx)
}

func (h systemHandler) cluster(ctx context.Context, _ string) (any, error) {
	return h.system.Cluster(ctx)
}

func (h systemHandler) doctor(context.Context, string) (any, error) { return h.system.Doctor() }

// backup is only for clients that could also copy the files themselves.
func (h systemHandler) backup(w http.ResponseWriter, r *http.Request, _ string) error {
	if !httpserver.Local(r.Context()) {
		return control.NewError(control.CodeForbidden, "a backup can only be requested over the Unix socket", "run 'tideover backup' on the machine itself")
	}
	var q control.BackupRequest
	o, err := body(r)
	if err != nil {
		return err
	}
	if err := o.fields("dir", &q.Dir, "without_shards", &q.WithoutShards); err != nil {
		return err
	}
	if err := h.system.CheckBackup(q); err != nil {
		return err
	}
	ctx, cancel := httpserver.LongRequest(w, r, time.Hour)
	defer cancel()
	b, err := h.system.Backup(ctx, q)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, b)
}
