package plan

import (
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/draw"
)

// span returns a range, or one duration if there is no more to it.
func span(low, high time.Duration) string {
	if low == high {
		return draw.Short(low)
	}
	return draw.Short(low) + ".." + draw.Short(high)
}
