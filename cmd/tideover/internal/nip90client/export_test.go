package nip90client

// Limit makes an inbox smaller for tests, because signing thousands of events is slow.
func (b *Inbox) Limit(waiting, results int) { b.room, b.results = waiting, results }

// LimitBytes sets a smaller memory limit for tests.
func (b *Inbox) LimitBytes(n int) { b.bytes = n }
