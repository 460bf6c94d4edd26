package doctor

import (
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

func TestDoors(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	cert := func(from, until time.Duration) *x509.Certificate {
		return &x509.Certificate{NotBefore: now.Add(from), NotAfter: now.Add(until), DNSNames: []string{"*.a.example"}, IPAddresses: []net.IP{net.IPv4(192, 0, 2, 1)}}
	}
	for _, c := range []struct {
		name string
		door Door
		want string
	}{
		{"loopback", Door{Key: "server.listen", Address: "127.0.0.1:7878", Hosts: []string{"127.0.0.1"}}, ""},
		{"open without TLS", Door{Key: "server.listen", Address: ":7878", Open: true}, "note: server.listen is :7878, which other machines can reach without TLS"},
		{"open with TLS", Door{Open: true, Certificate: cert(-day, 89*day), Hosts: []string{"other", "b.a.example"}}, ""},
		{"two weeks", Door{Certificate: cert(-76*day, 14*day)}, ""},
		{"less", Door{Certificate: cert(-76*day, 14*day-time.Second)}, "weak: the certificate expires in 13 days, on 2026-01-16 03:04 UTC"},
		{"tomorrow", Door{Certificate: cert(-89*day, day+time.Hour)}, "weak: the certificate expires in a day, on 2026-01-03 04:04 UTC"},
		{"today", Door{Certificate: cert(-89*day, time.Hour)}, "weak: the certificate expires in less than a day, on 2026-01-02 04:04 UTC"},
		{"over", Door{Certificate: cert(-90*day, 0)}, "broken: the certificate expired on 2026-01-02 03:04 UTC"},
		{"a short life", Door{Certificate: cert(-3*day, 3*day)}, ""},
		{"the last third of a short life", Door{Certificate: cert(-5*day, 2*day)}, "weak: the certificate expires in 2 days, on 2026-01-04 03:04 UTC"},
		{"not yet", Door{Certificate: cert(time.Hour, 90*day)}, "weak: the certificate is not valid before 2026-01-02 04:04 UTC"},
		{"another name", Door{Certificate: cert(-day, 89*day), Hosts: []string{"127.0.0.1", "a.example"}}, "weak: the certificate is for *.a.example, 192.0.2.1, but server.hosts is 127.0.0.1, a.example"},
		{"an address", Door{Certificate: cert(-day, 89*day), Hosts: []string{"192.0.2.1"}}, ""},
		{"no name", Door{Certificate: &x509.Certificate{NotBefore: now.Add(-day), NotAfter: now.Add(89 * day)}, Hosts: []string{"a"}}, "weak: the certificate is for no name, but server.hosts is a"},
		{"a renewal that can't be used", Door{Certificate: cert(-day, 89*day), Refused: errors.New("no key")}, "weak: the new certificate can't be used: no key"},
		{"none that can be used", Door{Open: true, Refused: errors.New("no key")}, "weak: the new certificate can't be used: no key"},
	} {
		var got []string
		for _, f := range c.door.Check(now) {
			got = append(got, f.Severity+": "+f.What)
			if f.Why == "" || f.Do == "" {
				t.Errorf("%s: a finding that says too little: %+v", c.name, f)
			}
		}
		if text := strings.Join(got, "\n"); text != c.want {
			t.Errorf("%s: found %q, want %q", c.name, text, c.want)
		}
	}
}
