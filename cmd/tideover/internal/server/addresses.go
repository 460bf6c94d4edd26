package server

import (
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/cmd/tideover/internal/httpserver"
	"github.com/tideover/tideover/cmd/tideover/internal/notify"
)

// addresses has the listen address of the server, its host names and its certificate.
type addresses struct {
	cfg         *config.Config
	gatewayOnly bool
	log         *slog.Logger
	certificate *httpserver.Certificate // nil without TLS

	page atomic.Pointer[string] // URL of the page; nil before the server listens
}

// newAddresses returns the addresses of a server. It loads the certificate, if one is configured.
func newAddresses(cfg *config.Config, gatewayOnly bool, log *slog.Logger) (a *addresses, err error) {
	a = &addresses{cfg: cfg, gatewayOnly: gatewayOnly, log: log}
	if cfg.Server.TLS.On() {
		a.certificate, err = httpserver.NewCertificate(cfg.Server.TLS, log)
	}
	return a, err
}

// listen returns the address to listen on.
func (a *addresses) listen() string { return ListenAddress(a.cfg, a.gatewayOnly).Address }

// hosts returns the host names that the gateway accepts.
func (a *addresses) hosts() []string {
	hosts := a.cfg.Server.Hosts
	if host, _, err := net.SplitHostPort(a.listen()); err == nil && host != "" {
		hosts = append(slices.Clip(hosts), host)
	}
	return hosts
}

// ListenAddress returns the listen address of a server with the configuration, or of a gateway
// alone if gateway is true. It does not set the certificate.
func ListenAddress(cfg *config.Config, gateway bool) doctor.Door {
	d := doctor.Door{Key: "server.listen", Address: cfg.Server.Listen}
	if gateway {
		d.Key, d.Address = "gateway.listen", cfg.Gateway.Listen
	}
	d.Open = config.Exposed(d.Address)
	d.Hosts = hostNames(cfg, d.Address)
	return d
}

// ignoredSettings returns a sentence for each setting that this kind of server does not use. A gateway
// alone has its own address, and runs no workflows.
func ignoredSettings(cfg *config.Config, gateway bool) (list []string) {
	used, unused, command := "server.listen", "gateway.listen", "tideover serve"
	if gateway {
		used, unused, command = unused, used, "tideover gateway"
	}
	for _, v := range cfg.Values() {
		if v.Path == unused && v.Origin != "default" {
			list = append(list, fmt.Sprintf("%s (%s) is ignored: %s listens at %s, which is %s", unused, v.Origin, command, used, ListenAddress(cfg, gateway).Address))
		}
	}
	if !gateway {
		return list
	}
	for _, section := range []struct {
		name    string
		present bool
	}{
		{"workflows", len(cfg.Workflows) > 0}, {"sessions", len(cfg.Sessions) > 0}, {"notify", len(cfg.Notifiers) > 0},
		{"nip90", cfg.NIP90 != nil}, {"engine.nats", cfg.Engine.Clustered()},
	} {
		if section.present {
			list = append(list, section.name+" is ignored by tideover gateway: use tideover serve")
		}
	}
	return list
}

// hostNames returns the names by which clients reach the server: the host of the listen address,
// unless it is a wildcard such as 0.0.0.0, the hosts of the configuration, and localhost for a
// loopback address.
func hostNames(cfg *config.Config, address string) (list []string) {
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

// listenAddress returns the address and the certificate for the doctor.
func (a *addresses) listenAddress() doctor.Door {
	d := ListenAddress(a.cfg, a.gatewayOnly)
	if a.certificate != nil {
		pair, rejected := a.certificate.Current()
		d.Certificate, d.Refused = pair.Leaf, rejected
	}
	return d
}

// findings returns what the doctor finds about the address and the certificate.
func (a *addresses) findings() []doctor.Finding { return a.listenAddress().Check(time.Now()) }

// certificateWarnings returns the findings as warnings for the log. It leaves out the rejection of
// new files, which the certificate logs itself.
func (a *addresses) certificateWarnings() (list []httpserver.Warning) {
	d := a.listenAddress()
	d.Refused = nil
	for _, f := range d.Check(time.Now()) {
		list = append(list, httpserver.Warning{What: f.What, Do: f.Do})
	}
	return list
}

// reloadCertificate makes the server read the files of the certificate now.
func (a *addresses) reloadCertificate() {
	if a.certificate != nil {
		a.certificate.Reload()
	}
}

// serveTCP returns the function that serves a TCP listener, with TLS if it is configured.
func (a *addresses) serveTCP(h *http.Server) func(net.Listener) error {
	if a.certificate != nil {
		h.TLSConfig = a.certificate.TLSConfig()
		return func(l net.Listener) error { return h.ServeTLS(l, "", "") }
	}
	for _, f := range a.findings() {
		a.log.Warn(f.What, "why", f.Why, "do", f.Do)
	}
	return h.Serve
}

// publicURL returns the URL of the page for users and other programs. Its host is the first of the
// host names; with TLS, the first for which the certificate is valid.
func (a *addresses) publicURL(addr net.Addr) string {
	_, port, _ := net.SplitHostPort(addr.String())
	known := hostNames(a.cfg, addr.String())
	scheme, certified := "http", known
	if a.certificate != nil {
		scheme = "https"
		pair, _ := a.certificate.Current()
		certified = slices.DeleteFunc(slices.Clone(known), func(n string) bool { return pair.Leaf.VerifyHostname(n) != nil })
	}
	host := addr.String()
	if list := append(certified, known...); len(list) > 0 {
		host = net.JoinHostPort(list[0], port)
	}
	return scheme + "://" + host + "/"
}

// place returns the origin of messages: this machine, and the URL of the page.
func (a *addresses) place() (p notify.Place) {
	p.Host, _ = os.Hostname() // "" if it is unknown
	if page := a.page.Load(); page != nil {
		p.Page = *page
	}
	return p
}

// newErrorLog returns the logger for errors that net/http reports about connections. A failed TLS
// handshake is logged at level debug, since any client can cause one; all other errors go to rest.
func newErrorLog(debug *slog.Logger, rest *log.Logger) *log.Logger {
	return log.New(errorLogWriter{debug, rest}, "", 0)
}

type errorLogWriter struct {
	debug *slog.Logger
	rest  *log.Logger
}

// Write implements [io.Writer].
func (w errorLogWriter) Write(line []byte) (int, error) {
	if text := strings.TrimSpace(string(line)); strings.HasPrefix(text, "http: TLS handshake error") {
		w.debug.Debug(text)
	} else {
		w.rest.Print(text)
	}
	return len(line), nil
}
