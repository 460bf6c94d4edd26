package nostr

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tideover/tideover/retry"
)

// defaultPace is the pace of everything that a relay is asked again.
const defaultPace = "exponential(1s..60s) jitter=full attempts=unlimited reset-after=60s"

// ClientConfig says how a [Client] works. Only Relays must be there.
type ClientConfig struct {
	Relays []string  // ws:// or wss://, without user and password
	Key    SecretKey // says who we are where a relay asks (NIP-42); zero: we don't

	// Handle gets the events of standing subscriptions: of the right shape, with
	// the right id and matching the subscription, but with a signature that nobody
	// has checked. The events of a relay come one at a time, those of several
	// relays at once. The same event may come again, from the same relay too.
	//
	// It runs where the relay is read: while it works, the relay waits, and if it
	// takes longer than PingTimeout the link may be taken for dead. An error says
	// that the relay should not have sent the event; a relay that does that more
	// than 100 times in a minute is left alone for five minutes, and not asked again
	// for what it had. Nil: no events.
	Handle func(relay string, e *Event) error

	// Stored is told, once for each time that a relay was asked, that all stored
	// events of a subscription have been handled. It runs where Handle does. Nil:
	// nobody is.
	Stored func(relay, subscription string)

	Logger     *slog.Logger // nil: nothing is logged
	HTTPClient *http.Client // makes the links; nil: one that follows no redirects

	Outbox       int           // events waiting for a relay, at most, and 32 MiB of them; 0 means 1024
	DialTimeout  time.Duration // 0 means 10 s
	WriteTimeout time.Duration // a write that takes longer ends the link; 0 means 10 s
	PingEvery    time.Duration // 0 means 30 s
	PingTimeout  time.Duration // without an answer for so long the link is dead; 0 means 10 s
	OKTimeout    time.Duration // without an answer for so long an event is sent again; 0 means 10 s
	Overlap      time.Duration // after an outage events are asked for from so long before it; 0 means 2 min
	Sweep        time.Duration // how often relays are asked again for what they did not push; 0 means 5 min

	// Reconnect is the pace of dialling and of subscriptions that a relay has
	// closed, Resend that of events which it could not take. The zero policy means
	// "exponential(1s..60s) jitter=full attempts=unlimited reset-after=60s".
	Reconnect retry.Policy
	Resend    retry.Policy
}

// withDefaults returns the configuration with zeroes spelled out.
func (c ClientConfig) withDefaults() (ClientConfig, error) {
	pace, err := retry.Parse(defaultPace)
	c.Reconnect, c.Resend = cmp.Or(c.Reconnect, pace), cmp.Or(c.Resend, pace)
	c.Outbox = cmp.Or(c.Outbox, 1024)
	for d, value := range map[*time.Duration]time.Duration{
		&c.DialTimeout: 10 * time.Second, &c.WriteTimeout: 10 * time.Second,
		&c.PingEvery: 30 * time.Second, &c.PingTimeout: 10 * time.Second, &c.OKTimeout: 10 * time.Second,
		&c.Overlap: 2 * time.Minute, &c.Sweep: 5 * time.Minute,
	} {
		*d = cmp.Or(*d, value)
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Handle == nil {
		c.Handle = func(string, *Event) error { return nil }
	}
	if c.HTTPClient == nil {
		c.HTTPClient = newHTTPClient()
	}
	return c, err
}

// newHTTPClient returns one that keeps no connections beside the links, and that a
// relay can't send elsewhere.
func newHTTPClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// check reports everything that is wrong, and returns the relays.
func (c *ClientConfig) check() ([]address, error) {
	list, err := parseRelays(c.Relays)
	errs := []error{err, checkPace("reconnect", c.Reconnect), checkPace("resend", c.Resend)}
	if c.Outbox < 0 {
		errs = append(errs, fmt.Errorf("outbox: %d is negative", c.Outbox))
	}
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"dial timeout", c.DialTimeout},
		{"write timeout", c.WriteTimeout},
		{"ping every", c.PingEvery},
		{"ping timeout", c.PingTimeout},
		{"ok timeout", c.OKTimeout},
		{"overlap", c.Overlap},
		{"sweep", c.Sweep},
	} {
		if f.d < 0 {
			errs = append(errs, fmt.Errorf("%s: %v is negative", f.name, f.d))
		}
	}
	return list, errors.Join(errs...)
}

// address is that of a relay.
type address struct {
	name string // without the query, which may hold a token
	url  string
}

func parseRelays(relays []string) ([]address, error) {
	var errs []error
	if len(relays) == 0 {
		errs = append(errs, errors.New("relays: there are none"))
	}
	list := make([]address, 0, len(relays))
	first := map[string]int{}
	for i, text := range relays {
		a, err := parseRelay(text)
		at, twice := first[a.name]
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("relays[%d]: %w", i, err))
		case twice:
			errs = append(errs, fmt.Errorf("relays[%d]: the same as relays[%d]", i, at))
		default:
			first[a.name] = i
			list = append(list, a)
		}
	}
	return list, errors.Join(errs...)
}

// parseRelay reads the address of a relay. Its errors don't quote it: it may hold
// what is nobody's business.
func parseRelay(text string) (address, error) {
	u, err := url.Parse(strings.TrimSpace(text))
	switch {
	case err != nil:
		return address{}, errors.New("not a URL")
	case u.Scheme != "ws" && u.Scheme != "wss":
		return address{}, errors.New("want an address that begins with ws:// or wss://")
	case u.Hostname() == "":
		return address{}, errors.New("the host is missing")
	case u.User != nil:
		return address{}, errors.New("user and password are not for relays")
	case u.Fragment != "":
		return address{}, errors.New("a fragment is not for relays")
	}
	u.Host = strings.ToLower(u.Host)
	u.Host = strings.TrimSuffix(u.Host, map[string]string{"ws": ":80", "wss": ":443"}[u.Scheme])
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = ""
	name := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return address{name.String(), u.String()}, nil
}
