package api

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/client"
	"github.com/tideover/tideover/internal/console/control"
	"github.com/tideover/tideover/internal/secret"
)

func TestOverTCPWithAToken(t *testing.T) {
	t.Parallel()
	f := serve(t)
	id := f.start("echo", `"x"`)
	c := f.dial(client.Target{Server: "http://" + f.tcp, Token: secret.New(token)})
	if out, err := c.Result(t.Context(), id); err != nil || strings.TrimSpace(string(out)) != `"x"` {
		t.Errorf("result %s, %v", out, err)
	}
	if end, err := c.Follow(t.Context(), id, func(control.Event) {}); err != nil || end.State != "succeeded" {
		t.Errorf("follow: %+v, %v", end, err)
	}
	without := f.dial(client.Target{Server: "http://" + f.tcp})
	if _, err := without.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "TIDEOVER_TOKEN") {
		t.Errorf("without a token: %v", err)
	}
	if h, err := without.Healthy(t.Context()); err != nil || !h.OK {
		t.Errorf("health: %+v, %v", h, err)
	}
}
