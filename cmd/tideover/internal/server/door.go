package server

import (
	"log"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
)

// door returns where the server is asked, for the doctor.
func (s *server) door() doctor.Door {
	d := Door(s.cfg, s.Gateway)
	if s.certificate != nil {
		pair, refused := s.certificate.Current()
		d.Certificate, d.Refused = pair.Leaf, refused
	}
	return d
}

// Door returns where a server with the configuration is asked, or a gateway that runs
// alone, without what it shows there.
func Door(cfg *config.Config, gateway bool) doctor.Door {
	d := doctor.Door{Key: "server.listen", Address: cfg.Server.Listen}
	if gateway {
		d.Key, d.Address = "gateway.listen", cfg.Gateway.Listen
	}
	d.Open = config.Exposed(d.Address)
	d.Hosts = names(cfg, d.Address)
	return d
}

// names are those by which others ask for the server at the address: that itself, if
// it is one, then those of the configuration.
func names(cfg *config.Config, address string) (list []string) {
	host, _, _ := net.SplitHostPort(address)
	if ip := net.ParseIP(host); host != "" && (ip == nil || !ip.IsUnspecified()) {
		list = append(list, host)
	}
	list = append(list, cfg.Server.Hosts...)
	if !config.Exposed(address) && !slices.Contains(list, "localhost") {
		list = append(list, "localhost")
	}
	return list
}

// certificateWarnings are the findings about the addresses and the certificate, except that the
// files were rejected, which is logged when it happens.
func (s *server) certificateWarnings() (list []httpserver.Warning) {
	d := s.door()
	d.Refused = nil
	for _, f := range d.Check(time.Now()) {
		list = append(list, httpserver.Warning{What: f.What, Do: f.Do})
	}
	return list
}

// findings are what the doctor says of the door.
func (s *server) findings() []doctor.Finding { return s.door().Check(time.Now()) }

// overTCP returns how connections over TCP are served, with TLS if that is configured.
func (s *server) overTCP(h *http.Server) func(net.Listener) error {
	if s.certificate != nil {
		h.TLSConfig = s.certificate.TLSConfig()
		return func(l net.Listener) error { return h.ServeTLS(l, "", "") }
	}
	for _, f := range s.findings() {
		s.Log.Warn(f.What, "why", f.Why, "do", f.Do)
	}
	return h.Serve
}

// publicAddress returns the address of the page as others would write it: a server
// that listens on all addresses has none by itself, and one that speaks TLS goes by
// the first of its names that its certificate has.
func (s *server) publicAddress(addr net.Addr) string {
	_, port, _ := net.SplitHostPort(addr.String())
	known := names(s.cfg, addr.String())
	scheme, name := "http", known
	if s.certificate != nil {
		scheme = "https"
		pair, _ := s.certificate.Current()
		name = slices.DeleteFunc(slices.Clone(known), func(n string) bool { return pair.Leaf.VerifyHostname(n) != nil })
	}
	at := addr.String()
	if list := append(name, known...); len(list) > 0 {
		at = net.JoinHostPort(list[0], port)
	}
	return scheme + "://" + at + "/"
}

// complaints is where net/http says what went wrong with connections. That somebody
// did not get through a handshake is of interest to few: everybody may try. The rest
// goes where it would go.
func complaints(to *slog.Logger, rest *log.Logger) *log.Logger {
	return log.New(complainer{to, rest}, "", 0)
}

type complainer struct {
	log  *slog.Logger
	rest *log.Logger
}

// Write implements [io.Writer].
func (c complainer) Write(line []byte) (int, error) {
	if text := strings.TrimSpace(string(line)); strings.HasPrefix(text, "http: TLS handshake error") {
		c.log.Debug(text)
	} else {
		c.rest.Print(text)
	}
	return len(line), nil
}
