package nostr

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/validate"
	"github.com/tideover/tideover/retry"
)

// defaultPace is the default policy of Reconnect and Resend.
const defaultPace = "exponential(1s..60s) jitter=full attempts=unlimited reset-after=60s"

// ClientConfig configures a [Client]. Only Relays is required.
type ClientConfig struct {
	Relays []string  // ws:// or wss://, without user and password
	Key    SecretKey // for relays that require authentication (NIP-42); zero means not to authenticate

	// Handle receives the events of subscriptions. Their shape and id are valid and
	// they match the subscription, but their signature is not checked. It is called
	// for one event of a relay at a time, and concurrently for several relays. The
	// same event may come again, also from the same relay.
	//
	// It runs on the goroutine that reads from the relay, so the relay waits for
	// it. If it takes longer than PingTimeout, the link may count as dead. It
	// returns an error if the relay should not have sent the event. A relay that
	// sends more than 100 such events in a minute is disconnected for five minutes,
	// and not asked again for the events that it sent. A nil Handle ignores all
	// events.
	Handle func(relay string, e *Event) error

	// Stored is called when all stored events of a subscription have been
	// handled, once for each request to a relay. It runs on the same goroutine
	// as Handle. It may be nil.
	Stored func(relay, subscription string)

	Logger     *slog.Logger // nil logs nothing
	HTTPClient *http.Client // makes the connections; nil means one that follows no redirects

	Outbox       int           // most events that wait for a relay, besides a limit of 32 MiB; 0 means 1024
	DialTimeout  time.Duration // 0 means 10 s
	WriteTimeout time.Duration // a write that takes longer ends the link; 0 means 10 s
	PingEvery    time.Duration // 0 means 30 s
	PingTimeout  time.Duration // without an answer in this time the link is dead; 0 means 10 s
	OKTimeout    time.Duration // without an answer in this time an event is sent again; 0 means 10 s
	Overlap      time.Duration // after an outage, events are requested from this long before it; 0 means 2 min
	Sweep        time.Duration // how often relays are asked again for events that they did not push; 0 means 5 min

	// Reconnect computes the waits before dialling, and before renewing a
	// subscription that a relay has closed. Resend computes the waits before
	// sending an event again that a relay did not accept. The zero policy means
	// "exponential(1s..60s) jitter=full attempts=unlimited reset-after=60s".
	Reconnect retry.Policy
	Resend    retry.Policy
}

type durationField struct {
	name     string // name of the field in errors
	value    *time.Duration
	standard time.Duration // default: replaces 0
}

func (c *ClientConfig) durations() []durationField {
	return []durationField{
		{"dial timeout", &c.DialTimeout, 10 * time.Second},
		{"write timeout", &c.WriteTimeout, 10 * time.Second},
		{"ping every", &c.PingEvery, 30 * time.Second},
		{"ping timeout", &c.PingTimeout, 10 * time.Second},
		{"ok timeout", &c.OKTimeout, 10 * time.Second},
		{"overlap", &c.Overlap, 2 * time.Minute},
		{"sweep", &c.Sweep, 5 * time.Minute},
	}
}

// withDefaults returns the configuration with zeros replaced by their defaults.
func (c ClientConfig) withDefaults() (ClientConfig, error) {
	pace, err := retry.Parse(defaultPace)
	c.Reconnect, c.Resend = cmp.Or(c.Reconnect, pace), cmp.Or(c.Resend, pace)
	c.Outbox = cmp.Or(c.Outbox, 1024)
	for _, f := range c.durations() {
		*f.value = cmp.Or(*f.value, f.standard)
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	if c.Handle == nil {
		c.Handle = func(string, *Event) error { return nil }
	}
	c.HTTPClient = cmp.Or(c.HTTPClient, newHTTPClient())
	return c, err
}

// newHTTPClient returns a client that keeps no idle connections and follows no
// redirects.
func newHTTPClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// check returns the relays, or every problem of the configuration.
func (c *ClientConfig) check() ([]address, error) {
	list, err := parseRelays(c.Relays)
	errs := validate.Problems{err, checkPace("reconnect", c.Reconnect), checkPace("resend", c.Resend)}
	validate.NotNegative(&errs, "outbox", c.Outbox)
	for _, f := range c.durations() {
		validate.NotNegative(&errs, f.name, *f.value)
	}
	return list, errors.Join(errs...)
}

// address is the address of a relay.
type address struct {
	name string // without the query, which may contain a token
	url  string
}

func parseRelays(relays []string) ([]address, error) {
	var errs validate.Problems
	errs.Check(len(relays) > 0, "relays: the list is empty: add at least one ws:// or wss:// address")
	list := make([]address, 0, len(relays))
	first := map[string]int{}
	for i, text := range relays {
		a, err := parseRelay(text)
		at, twice := first[a.name]
		switch {
		case err != nil:
			errs.Add("relays[%d]: %w", i, err)
		case twice:
			errs.Add("relays[%d]: the same as relays[%d]", i, at)
		default:
			first[a.name] = i
			list = append(list, a)
		}
	}
	return list, errors.Join(errs...)
}

// parseRelay parses the address of a relay. Its errors do not quote it, because
// it may contain a secret.
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
		return address{}, errors.New("user and password are not supported: remove them")
	case u.Fragment != "":
		return address{}, errors.New("a fragment is not supported: remove it")
	}
	u.Host = strings.ToLower(u.Host)
	u.Host = strings.TrimSuffix(u.Host, map[string]string{"ws": ":80", "wss": ":443"}[u.Scheme])
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawPath = ""
	name := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	return address{name.String(), u.String()}, nil
}
