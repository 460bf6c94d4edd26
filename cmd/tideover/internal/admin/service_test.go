package admin

import (
	"testing"

	"github.com/tideover/tideover/internal/console/control"
)

func TestAServiceWithoutAnEngine(t *testing.T) {
	t.Parallel()
	s := New(Config{Version: "tideover v1.2.3"})
	if s.Runs != nil || s.Messages != nil || s.Sessions != nil || !s.System.Health().OK || len(s.Providers.List()) != 0 {
		t.Errorf("New(Config{}) = %+v", s)
	}
	if _, err := s.Providers.Apply("claude", "open", "x"); err == nil || control.AsError(err).Code != control.CodeNotFound {
		t.Errorf("Apply to an unknown provider: %v", err)
	}
	if _, err := s.System.Doctor(); err == nil || control.AsError(err).Code != control.CodeNotFound {
		t.Errorf("Doctor: %v", err)
	}
}
