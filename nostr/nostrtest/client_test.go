package nostrtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/nostrtest"
)

// client is a minimal client for tests.
type client struct {
	t    testing.TB
	conn *websocket.Conn
}

func dial(t testing.TB, r *nostrtest.Relay) *client {
	t.Helper()
	conn, _, err := websocket.Dial(testwait.Context(t), r.URL(), nil)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(nostr.MaxFrame)
	t.Cleanup(func() { conn.CloseNow() })
	return &client{t, conn}
}

// send sends a message.
func (c *client) send(format string, args ...any) {
	c.t.Helper()
	if err := c.conn.Write(testwait.Context(c.t), websocket.MessageText, fmt.Appendf(nil, format, args...)); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

func (c *client) publish(e *nostr.Event) {
	c.t.Helper()
	c.send(`["EVENT",%s]`, e.AppendJSON(nil))
}

// frame returns the next frame.
func (c *client) frame() string {
	c.t.Helper()
	_, text, err := c.conn.Read(testwait.Context(c.t))
	if err != nil {
		c.t.Fatalf("read: %v", err)
	}
	return string(text)
}

// want reads as many messages as are wanted and compares their brief forms.
func (c *client) want(want ...string) {
	c.t.Helper()
	for i, w := range want {
		if got := brief(c.t, c.frame()); got != w {
			c.t.Fatalf("message %d: got %s, want %s", i, got, w)
		}
	}
}

// lost waits until the link is broken.
func (c *client) lost() error {
	c.t.Helper()
	for {
		_, text, err := c.conn.Read(testwait.Context(c.t))
		if err != nil {
			return err
		}
		c.t.Logf("before the link broke came %.100s", text)
	}
}

// quiet checks that no message is waiting: the next one is the answer to a new
// request.
func (c *client) quiet() {
	c.t.Helper()
	c.send(`["REQ","quiet",{"ids":[]}]`)
	c.want("EOSE quiet")
	c.send(`["CLOSE","quiet"]`)
}

// brief returns a short form of a message; of an event, its content.
func brief(t testing.TB, text string) string {
	t.Helper()
	m, err := nostr.ParseRelayMessage([]byte(text))
	if err != nil {
		return "malformed"
	}
	switch m.Type {
	case nostr.TypeEvent:
		return fmt.Sprint("EVENT ", m.Sub, " ", m.Event.Content)
	case nostr.TypeOK:
		return strings.TrimSpace(fmt.Sprint("OK ", m.OK, " ", m.Prefix()))
	case nostr.TypeEOSE:
		return fmt.Sprint("EOSE ", m.Sub)
	case nostr.TypeClosed:
		return fmt.Sprint("CLOSED ", m.Sub, " ", m.Prefix())
	}
	return m.Type
}

func key(t testing.TB, n int) nostr.SecretKey {
	t.Helper()
	k, err := nostr.ParseSecretKey(fmt.Sprintf("%064x", n))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// newNote returns an event of author 1, of kind 1.
func newNote(t testing.TB, at int64, content string) *nostr.Event {
	t.Helper()
	return sign(t, 1, nostr.Event{CreatedAt: at, Kind: 1, Content: content})
}

func sign(t testing.TB, author int, e nostr.Event) *nostr.Event {
	t.Helper()
	if err := e.Sign(key(t, author)); err != nil {
		t.Fatal(err)
	}
	return &e
}

// stored returns the contents of the stored events.
func stored(r *nostrtest.Relay) (list []string) {
	for _, e := range r.Events() {
		list = append(list, e.Content)
	}
	return list
}
