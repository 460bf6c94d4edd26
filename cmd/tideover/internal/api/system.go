package api

import (
	"context"
	_ "embed"
	"net/http"
	"strconv"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/admin"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/internal/console/control"
)

// openapi is the description of the API. docs/openapi.yaml is a copy of the file: Go can embed only
// files in the folder of the package.
//
//go:embed openapi.yaml
var openapi string

// systemHandler handles requests about the server itself.
type systemHandler struct{ system *admin.System }

func (h systemHandler) openapi(r *request) (any, error) {
	r.w.Header().Set("Content-Type", "application/yaml")
	r.w.Header().Set("Content-Length", strconv.Itoa(len(openapi)))
	_, _ = r.w.Write([]byte(openapi)) // the client may have disconnected
	return alreadyAnswered{}, nil
}

func (h systemHandler) health(*request) (any, error) {
	health := h.system.Health()
	if !health.OK {
		return reply{http.StatusServiceUnavailable, health}, nil
	}
	return health, nil
}

func (h systemHandler) doctor(context.Context) (admin.Diagnosis, error) { return h.system.Doctor() }

// backup stores a backup on the server's machine. It accepts only requests over the Unix socket,
// whose clients could copy the files themselves.
func (h systemHandler) backup(r *request) (any, error) {
	if !httpserver.Local(r.Context()) {
		return nil, control.NewError(control.CodeForbidden, "a backup can only be requested over the Unix socket", "run 'tideover backup' on the machine itself")
	}
	var q admin.BackupRequest
	o, err := r.body()
	if err == nil {
		err = o.fields("dir", &q.Dir, "without_shards", &q.WithoutShards)
	}
	if err != nil {
		return nil, err
	}
	ctx, cancel := httpserver.LongRequest(r.w, r.Request, time.Hour)
	defer cancel()
	return h.system.Backup(ctx, q)
}
