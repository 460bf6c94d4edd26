package plan

import (
	"time"

	"github.com/tideover/tideover/internal/textfmt"
)

// span returns a range, or one duration if there is no more to it.
func durationRange(low, high time.Duration) string {
	if low == high {
		return textfmt.ShortDuration(low)
	}
	return textfmt.ShortDuration(low) + ".." + textfmt.ShortDuration(high)
}
