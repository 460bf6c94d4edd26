package nip90client

// Limit makes an inbox smaller: signing events by the thousand takes a while.
func (b *Inbox) Limit(waiting, results int) { b.room, b.results = waiting, results }

// LimitBytes does the same for the memory that it takes.
func (b *Inbox) LimitBytes(n int) { b.bytes = n }
