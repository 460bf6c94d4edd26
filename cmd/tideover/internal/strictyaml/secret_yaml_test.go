package strictyaml

import (
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/tideover/tideover/internal/secret"
)

// TestYAMLOfASecretIsTheMask is here because package secret has no YAML encoder.
func TestYAMLOfASecretIsTheMask(t *testing.T) {
	t.Parallel()
	const planted = "s3cr3t-PLANTED-value"
	s := secret.New(planted)
	got, err := yaml.Marshal(struct {
		Public  secret.String
		Pointer *secret.String
		Map     map[string]secret.String
		List    []secret.String
		private secret.String
	}{s, &s, map[string]secret.String{"k": s}, []secret.String{s}, s})
	if err != nil || strings.Contains(string(got), planted) || strings.Count(string(got), secret.Mask) != 4 {
		t.Errorf("yaml.Marshal = %s, %v", got, err)
	}
}
