package advise

import (
	"testing"

	"github.com/tideover/tideover/retry"
)

func TestTheTextOfACandidateHasNoCapThatIsNeverReached(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ policy, want string }{
		{"exponential(500ms..15s) jitter=full attempts=2", "exponential(500ms) jitter=full attempts=2"},
		{"exponential(4s..16s) jitter=full attempts=4", "exponential(4s) jitter=full attempts=4"},
		{"exponential(4s..16s) jitter=full attempts=5", "exponential(4s..16s) jitter=full attempts=5"},
		{"exponential(4s..16s) jitter=50% attempts=4", "exponential(4s..16s) jitter=50% attempts=4"},
		{"decorrelated(1s..15s) attempts=2", "decorrelated(1s..15s) attempts=2"},
		{"exponential(4s..4s) jitter=full attempts=5", "fixed(4s) jitter=full attempts=5"},
		{"fixed(0s) total-timeout=30s", "fixed(0s) total-timeout=30s"},
	} {
		p, err := retry.Parse(tt.policy)
		if got := (candidate{policy: p}).text(); err != nil || got != tt.want {
			t.Errorf("%s: the text is %q, %v, want %q", tt.policy, got, err, tt.want)
		}
	}
}
