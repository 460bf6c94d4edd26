package nip90client

// Limit makes an inbox smaller: signing events by the thousand takes a while.
func (b *Inbox) Limit(waiting, results int) { b.room, b.results = waiting, results }
