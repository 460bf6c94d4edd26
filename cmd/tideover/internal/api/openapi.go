package api

import (
	_ "embed"
	"net/http"
	"strconv"
)

// openapi describes the API for programs. docs/openapi.yaml is a copy, because a
// module can embed only what is below it.
//
//go:embed openapi.yaml
var openapi string

// beside returns the route of a path that is not below [Prefix]: what a machine
// asks for before it knows the version.
func beside(path string) string {
	switch path {
	case "/healthz":
		return "healthz"
	case "/api/openapi.yaml":
		return "openapi.yaml"
	}
	return path
}

func (s *server) openapi(w http.ResponseWriter, _ *http.Request, _ string) error {
	w.Header().Set("Content-Type", "application/yaml")
	w.Header().Set("Content-Length", strconv.Itoa(len(openapi)))
	_, _ = w.Write([]byte(openapi)) // to somebody who may be gone
	return nil
}
