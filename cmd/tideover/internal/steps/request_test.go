package steps

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
		kept, ended, err := r.read(strings.NewReader(body), 50)
		text, over := beginning(kept)
		if over = over || !ended; err != nil || text != want || over != (len(body) > 50) {
			t.Errorf("read(%.30q) = %q, over %v, %v, want %q", body, text, over, err, want)
		}
	}
}

func TestThePolicyMayGiveARequestMoreTime(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Minute, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			ctx, want := t.Context(), requestTimeout
			if limit > 0 {
				limited, cancel := context.WithTimeout(ctx, limit)
				defer cancel()
				ctx, want = limited, limit
			}
			ctx, cancel := withTimeout(ctx)
			defer cancel()
			if at, _ := ctx.Deadline(); time.Until(at) != want {
				t.Errorf("with a limit of %v, a request has %v", limit, time.Until(at))
			}
		})
	}
}
