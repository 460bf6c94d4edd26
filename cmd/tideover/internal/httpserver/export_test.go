package httpserver

import "time"

// Poll reads the files once, as Run does.
func (c *Certificate) Poll(now time.Time) { c.poll(now) }
