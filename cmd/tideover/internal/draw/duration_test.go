package draw

import (
	"math"
	"testing"
	"time"
)

func TestShort(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"},
		{1, "1ns"},
		{1234567, "1.235ms"},
		{10 * time.Microsecond, "10us"},
		{945 * time.Millisecond, "945ms"},
		{999999 * time.Microsecond, "1s"},
		{8400 * time.Millisecond, "8.4s"},
		{12345678 * time.Microsecond, "12.35s"},
		{5 * time.Minute, "5m"},
		{128400 * time.Millisecond, "2m8.4s"},
		{time.Hour, "1h"},
		{time.Hour + 5*time.Second, "1h0m5s"},
		{90 * time.Minute, "1h30m"},
		{10 * day, "10d"},
		{8*day + 12*time.Hour, "8d12h"},
		{400 * day, "1.1y"},
		{math.MaxInt64, "292y"},
	} {
		if got := Short(tt.d); got != tt.want {
			t.Errorf("Short(%d) = %q, want %q", tt.d, got, tt.want)
		}
	}
}
