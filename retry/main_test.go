package retry

import (
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC // golden files have times
	m.Run()
}
