package doctor

import (
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/engine/journal"
)

// Door is an address on which a server listens, with its certificate.
type Door struct {
	Key     string   // configuration key of the address
	Address string   // host:port
	Open    bool     // reachable from other machines
	Hosts   []string // accepted host names

	Certificate *x509.Certificate // nil without TLS
	Refused     error             // why a newer certificate in the files was rejected; nil if there is none
}

// early is how long before its expiry a certificate should be renewed. A certificate with a lifetime
// under 42 days should be renewed in the last third of its lifetime.
const early = 14 * 24 * time.Hour

// Check checks the encryption of the address, and the dates and names of its certificate.
func (d Door) Check(now time.Time) []Finding {
	var f findings
	if d.Open && d.Certificate == nil && d.Refused == nil {
		f.add(journal.Note, "set server.tls, or put a TLS proxy in front of it and block direct access",
			"the token is sent unencrypted over the network", "%s is %s, which other machines can reach without TLS", d.Key, d.Address)
	}
	if d.Refused != nil {
		f.add(journal.Weak, "renew it, and check that the key belongs to it and only the server can read it",
			"the previous one is used until it expires", "the new certificate can't be used: %v", d.Refused)
	}
	if d.Certificate != nil {
		d.checkTime(&f, now)
		d.checkNames(&f)
	}
	return f
}

// checkTime checks the validity period of the certificate.
func (d Door) checkTime(f *findings, now time.Time) {
	const do, why = "renew it; the server loads it automatically", "clients reject it from then on"
	from, until := d.Certificate.NotBefore, d.Certificate.NotAfter
	left := until.Sub(now)
	switch {
	case left <= 0:
		f.add(journal.Broken, do, "clients reject it", "the certificate expired on %s", day(until))
	case now.Before(from):
		f.add(journal.Weak, "set the clock, or get a certificate that is valid now", "clients reject it until then", "the certificate is not valid before %s", day(from))
	case left < min(early, until.Sub(from)/3):
		f.add(journal.Weak, do, why, "the certificate expires in %s, on %s", remaining(left), day(until))
	}
}

// day formats a time to the minute, in UTC.
func day(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// remaining formats the remaining time in days, so that the text changes only once a day.
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

// checkNames checks that the certificate is valid for at least one host name of the server.
func (d Door) checkNames(f *findings) {
	if len(d.Hosts) == 0 || slices.ContainsFunc(d.Hosts, func(h string) bool { return d.Certificate.VerifyHostname(h) == nil }) {
		return
	}
	f.add(journal.Weak, "add one of its names to server.hosts, or get a certificate for a name in server.hosts",
		"clients reject it, or the server rejects them", "the certificate is for %s, but server.hosts is %s", names(d.Certificate), strings.Join(d.Hosts, ", "))
}

// names returns the names and addresses of a certificate.
func names(c *x509.Certificate) string {
	list := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		list = append(list, ip.String())
	}
	if len(list) == 0 {
		return "no name"
	}
	return strings.Join(list, ", ")
}
