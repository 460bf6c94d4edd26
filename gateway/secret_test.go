package gateway

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

func TestASecretIsNotShown(t *testing.T) {
	t.Parallel()
	const value = "sk-PLANTED"
	s := NewSecret(value)
	if got := s.Reveal(); got != value || s.IsZero() {
		t.Errorf("Reveal() = %q, IsZero() = %v", got, s.IsZero())
	}
	if zero := (Secret{}); zero.Reveal() != "" || !zero.IsZero() || !NewSecret("").IsZero() {
		t.Error("the zero Secret is not empty")
	}
	spec := Spec{Keys: []Key{{Name: "one", Value: s}}, Headers: []Header{{Name: "X-A", Value: s}}}
	options := Options{Token: s}
	for _, v := range []any{s, &s, spec, &spec, options, []Secret{s}, map[string]Secret{"a": s}, struct{ hidden Secret }{s}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%20s", "%T"} {
			if got := fmt.Sprintf(verb, v); strings.Contains(got, value) || strings.Contains(strings.ToLower(got), fmt.Sprintf("%x", value)) {
				t.Errorf("%s of a %T shows the value: %s", verb, v, got)
			}
		}
	}
	for name, got := range map[string]string{"String": s.String(), "GoString": s.GoString(), "LogValue": s.LogValue().String()} {
		if got != "***" {
			t.Errorf("%s() = %q", name, got)
		}
	}
	if text, err := json.Marshal(map[string]any{"a": s, "b": spec.Keys, "c": map[string]*Secret{"d": &s}}); err != nil ||
		string(text) != `{"a":"***","b":[{"Name":"one","Value":"***","Account":""}],"c":{"d":"***"}}` {
		t.Errorf("JSON is %s, %v", text, err)
	}
	if text, err := s.MarshalText(); err != nil || string(text) != "***" {
		t.Errorf("MarshalText() = %s, %v", text, err)
	}
	if v, err := s.MarshalYAML(); err != nil || v != "***" {
		t.Errorf("MarshalYAML() = %v, %v", v, err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("a", "key", s, "spec", spec)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("a", "key", s, "keys", spec.Keys)
	if strings.Contains(log.String(), value) {
		t.Errorf("the log has the value: %s", log.String())
	}
}
