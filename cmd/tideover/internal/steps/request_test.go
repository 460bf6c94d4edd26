package steps

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/secret"
)

// A body with many secrets becomes shorter than the limit when they are masked. If the part
// that is read ends inside a secret, that beginning of the secret must not be kept.
func TestABodyIsNotCutInsideASecret(t *testing.T) {
	t.Parallel()
	r := &Runner{Redactor: new(secret.Redactor)}
	r.Redactor.Add("hush-hush-key")
	for body, want := range map[string]string{
		"short":                               "short",
		"it is hush-hush-key, it is":          "it is ***, it is",
		strings.Repeat("hush-hush-key ", 10):  "*** *** *** *** *** *** *** ",
		strings.Repeat("x", 200):              strings.Repeat("x", 50),
		strings.Repeat("x", 45) + "hush-hush": strings.Repeat("x", 45) + "hush-",
	} {
		kept, err := r.read(strings.NewReader(body), 50)
		if err != nil || kept.text() != want || kept.over != (len(body) > 50) {
			t.Errorf("read(%.30q) = %q, over %v, %v, want %q", body, kept.text(), kept.over, err, want)
		}
	}
}
