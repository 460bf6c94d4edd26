package api

import (
	"context"
	"net/http"

	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
)

// Diagnosis is what makes the promise of a server weaker.
type Diagnosis struct {
	Engine   string           `json:"engine"` // where runs are kept, in words
	Findings []doctor.Finding `json:"findings"`
}

// doctor looks at the machine that the server is on.
func (s *server) doctor(w http.ResponseWriter, r *http.Request, _ string) error {
	if _, err := queryOf(r); err != nil {
		return err
	}
	if s.look == nil {
		return &Problem{Status: http.StatusNotFound, Code: CodeNotFound, Message: "this server does not look at itself"}
	}
	d := s.look()
	d.Findings = notNil(d.Findings)
	return answer(w, http.StatusOK, d)
}

// Doctor returns what makes the promise of the server weaker.
func (c *Client) Doctor(ctx context.Context) (d Diagnosis, err error) {
	err = c.call(ctx, http.MethodGet, "doctor", nil, nil, &d)
	return d, err
}
