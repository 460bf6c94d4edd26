package nostrtest

import "github.com/tideover/tideover/nostr"

// maxReceivedBytes bounds the messages that are kept, besides their number.
const maxReceivedBytes = 64 << 20

// Received is a message that came from a client.
type Received struct {
	Link    int            // the number of the link that it came on, from 1
	Frame   string         // as it came
	Message *nostr.Message // nil if it is none
}

// received keeps the last messages.
type received struct {
	limit int
	list  []Received
	bytes int
}

func (r *received) add(m Received) {
	r.list = append(r.list, m)
	r.bytes += len(m.Frame)
	for len(r.list) > r.limit || r.bytes > maxReceivedBytes {
		r.bytes -= len(r.list[0].Frame)
		r.list[0] = Received{} // what it holds is free before the array is
		r.list = r.list[1:]
	}
}
