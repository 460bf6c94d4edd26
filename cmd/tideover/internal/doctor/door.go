package doctor

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// Door is where a server is asked, and what it shows to whoever asks.
type Door struct {
	Key     string   // of the configuration that has the address
	Address string   // host:port
	Open    bool     // others than this machine can reach it
	Hosts   []string // names by which it may be asked

	Certificate *x509.Certificate // nil means that it speaks no TLS
	Refused     error             // why what is in the files is not shown instead
}

// early is how long before its end a certificate should be another. One that does
// not live for long is renewed later, in the last third of its life.
const early = 14 * 24 * time.Hour

// Check looks at the door.
func (d Door) Check(now time.Time) []Finding {
	var f findings
	if d.Open && d.Certificate == nil && d.Refused == nil {
		f.add(journal.Note, "set server.tls, or have a proxy that speaks TLS before it and let nobody else reach it",
			"the token crosses the network in the clear", "%s is %s, which is open to others, without TLS", d.Key, d.Address)
	}
	if d.Refused != nil {
		f.add(journal.Weak, "renew it, and see that the key is its key and can be read by the server alone",
			"the one before is shown until it ends", "the new certificate can't be used: %v", d.Refused)
	}
	if d.Certificate != nil {
		d.checkTime(&f, now)
		d.checkNames(&f)
	}
	return f
}

// checkTime looks whether the certificate is one now, and for how long.
func (d Door) checkTime(f *findings, now time.Time) {
	const do, why = "renew it; the server takes it over by itself", "clients refuse it from then on"
	from, until := d.Certificate.NotBefore, d.Certificate.NotAfter
	left := until.Sub(now)
	switch {
	case left <= 0:
		f.add(journal.Broken, do, "clients refuse it", "the certificate ended on %s", day(until))
	case now.Before(from):
		f.add(journal.Weak, "set the clock, or get a certificate that is one already", "clients refuse it until then", "the certificate begins on %s", day(from))
	case left < min(early, until.Sub(from)/3):
		f.add(journal.Weak, do, why, "the certificate ends in %s, on %s", remaining(left), day(until))
	}
}

// day is how a time is told.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// remaining is how long it is until then, in words that change once a day.
func remaining(d time.Duration) string {
	const day = 24 * time.Hour
	switch n := d / day; n {
	case 0:
		return "less than a day"
	case 1:
		return "a day"
	default:
		return fmt.Sprintf("%d days", n)
	}
}

// checkNames looks whether the certificate is for a name that the server goes by.
func (d Door) checkNames(f *findings) {
	if len(d.Hosts) == 0 || slices.ContainsFunc(d.Hosts, func(h string) bool { return d.Certificate.VerifyHostname(h) == nil }) {
		return
	}
	f.add(journal.Weak, "put a name that it has into server.hosts, or get one for a name that is there",
		"clients refuse it, or the server refuses them", "the certificate is for %s, and the server goes by %s", names(d.Certificate), strings.Join(d.Hosts, ", "))
}

// names returns for whom a certificate is.
func names(c *x509.Certificate) string {
	list := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		list = append(list, ip.String())
	}
	if len(list) == 0 {
		return "nobody"
	}
	return strings.Join(list, ", ")
}
