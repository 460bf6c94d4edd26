package contend_test

import "sync"

// cell is a store with conditional writes.
type cell struct {
	mu      sync.Mutex
	value   string
	version int
}

func (c *cell) get() (string, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value, c.version
}

// set writes the value if the version is unchanged, and otherwise returns the
// present value.
func (c *cell) set(value string, version int) (winner string, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if version != c.version {
		return c.value, false
	}
	c.value, c.version = value, version+1
	return value, true
}
