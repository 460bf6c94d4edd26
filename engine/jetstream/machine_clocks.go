package jetstream

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// machineClocks compares the time since boot of this machine with those of the machines of other
// members. Wall clocks can be set; the times since boot of two machines always differ by the same
// amount. Each member sends the time with each heartbeat.
type machineClocks struct {
	*backend

	mu       sync.Mutex
	asked    time.Time                // when this process joined, and asked the others for their times
	ahead    map[string]time.Duration // by boot: our time when the last message arrived, minus the time in it
	received chan struct{}            // closed when a message has arrived
}

// maxBoots limits the boots that are known. It keeps a faulty sender from using up the memory.
const maxBoots = 10_000

func newMachineClocks(b *backend) *machineClocks {
	return &machineClocks{backend: b, asked: time.Now(), ahead: map[string]time.Duration{}, received: make(chan struct{})}
}

// clockMessage is the text of a message with the time since boot. Its word says whether the others
// are to answer with their own times. Older releases ignore the message.
const clockMessage = "%s %s %d"

const (
	clockTold  = "clock"
	clockAsked = "clock?"
)

// send sends the time since boot to the other members.
func (c *machineClocks) send(word string) {
	if word == clockAsked {
		c.mu.Lock()
		c.asked = time.Now()
		c.mu.Unlock()
	}
	if up, boot := c.cfg.sinceBoot(); boot != "" {
		_ = c.c.nc.Publish(c.names.noticeSubject(), fmt.Appendf(nil, clockMessage, word, boot, up))
	}
}

// receive handles a message of send. It returns false if the message is another one.
func (c *machineClocks) receive(m *nats.Msg) bool {
	text := string(m.Data)
	if !strings.HasPrefix(text, clockTold) {
		return false
	}
	up, own := c.cfg.sinceBoot()
	var word, boot string
	var sent time.Duration
	if n, err := fmt.Sscanf(text, clockMessage, &word, &boot, &sent); n != 3 || err != nil || boot == own {
		return true
	}
	if word == clockAsked {
		c.send(clockTold)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.ahead[boot]; !known && len(c.ahead) >= maxBoots {
		clear(c.ahead)
	}
	c.ahead[boot] = up - sent
	close(c.received)
	c.received = make(chan struct{})
	return true
}

// of returns by how much this machine is ahead of another one: see [journal.Clocked]. If this
// process has just joined, it waits for the message of a member that is alive.
func (c *machineClocks) of(ctx context.Context, boot string) (time.Duration, bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.mu.Lock()
		ahead, known := c.ahead[boot]
		received, asked := c.received, c.asked
		c.mu.Unlock()
		if known {
			return ahead, true
		}
		timer.Reset(time.Until(asked.Add(2 * c.timing.beat)))
		select {
		case <-received:
		case <-timer.C:
			return 0, false
		case <-ctx.Done():
			return 0, false
		}
	}
}
