package memlog_test

import (
	"sync"
	"testing"

	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/journaltest"
	"github.com/tideover/tideover/engine/journal/memlog"
)

func TestConformance(t *testing.T) {
	var mu sync.Mutex
	stores := map[string]*memlog.Store{}
	journaltest.Run(t, func(t *testing.T, dir string) journal.Log {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		if stores[dir] == nil {
			stores[dir] = new(memlog.Store)
		}
		return stores[dir].Open()
	})
}
