package config

import (
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/internal/lazyregexp"
)

// defaultListen is where it listens unless said.
const defaultListen = "127.0.0.1:7878"

// maxSocket is how long the path of a unix socket may be, on the system that
// allows least.
const maxSocket = 103

// server reads the section with the variables and the flags over it.
func (l *loader) server(at place, s *Server) {
	if at.node.kind == nullKind {
		at.node = &node{kind: mapKind}
	}
	if at.node.kind == mapKind {
		at.node = layers(l, at, serverKeys)
	}
	found, _ := object(l, at, serverKeys, s)
	l.defaultPlaces(at, found, s)
	l.apart(s.Data)
	if durability, ok := found["durability"]; ok && l.cfg.Engine.Clustered() {
		l.bad(durability, "is of the folder; on a cluster it is the servers' matter: set sync_interval: always for them, and leave this out")
	}
	if here, ok := found["max-connections-per-address"]; ok && s.MaxConnections > 0 && s.MaxConnectionsPerAddress > s.MaxConnections {
		l.bad(here, "%d is more than max-connections, %d", s.MaxConnectionsPerAddress, s.MaxConnections)
	}
	if listen, ok := found["listen"]; ok && s.Listen != "" && !loopback(s.Listen) {
		l.open(listen, found, s)
	}
}

// open checks what an address needs that others can reach.
func (l *loader) open(listen place, found map[string]place, s *Server) {
	if _, ok := found["token"]; !ok {
		l.bad(listen, "%q is open to others, and there is no token; set server.token, or listen on 127.0.0.1", s.Listen)
	}
	if hosts, ok := found["hosts"]; !ok || hosts.node.kind == listKind && len(hosts.node.items) == 0 {
		l.bad(listen, "%q is open to others, who ask for a host by its name; set server.hosts to the names they use, or listen on 127.0.0.1", s.Listen)
	}
}

var serverKeys = []key[Server]{
	{
		name: "listen", def: defaultListen, doc: "Address of the control API and the page. One that is not loopback needs a token and hosts.",
		schema: listenSchema,
		set: func(l *loader, at place, s *Server) {
			if text, ok := l.scalar(at); ok && l.checkListen(at, text) {
				s.Listen = text
				l.value(at, text)
			}
		},
	},
	{
		name: "hosts", doc: "Further host names and IP addresses under which the server may be asked, without port; requests for others are refused. Needed if listen is not loopback. The variable has commas between them.",
		schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: `^[A-Za-z0-9_:.-]+$`}, UniqueItems: true}
		},
		set: func(l *loader, at place, s *Server) { s.Hosts = l.hosts(at) },
	},
	{
		name: "data", doc: "Folder of all state, relative to the file's; $XDG_STATE_HOME/tideover or ~/.local/state/tideover unless said.", schema: scalarSchema,
		set: func(l *loader, at place, s *Server) {
			if text, ok := l.scalar(at); ok {
				s.Data = l.path(at, text)
				l.value(at, s.Data)
			}
		},
	},
	{
		name: "socket", doc: "Path of the unix socket of the control API; tideover.sock in data unless said.", schema: scalarSchema,
		set: func(l *loader, at place, s *Server) {
			if text, ok := l.scalar(at); ok {
				s.Socket = l.socket(at, l.path(at, text))
			}
		},
	},
	{
		name: "token", doc: "Secret that callers present, as a reference: ${env:NAME} or ${file:path}; one is generated in data unless said.",
		schema: referenceSchema,
		set:    func(l *loader, at place, s *Server) { s.Token = l.token(at) },
	},
	{
		name: "tls", doc: "Files to speak TLS with, which may be renewed while they are used; not spoken unless said. The variables are TIDEOVER_SERVER_TLS_CERT and so on.", inside: []string{"cert", "key"},
		schema: serverTLSSchema,
		set:    func(l *loader, at place, s *Server) { l.serverTLS(at, &s.TLS) },
	},
	{
		name: "retention", def: "14d", doc: "How long ended runs are kept.", schema: durationSchema,
		set: func(l *loader, at place, s *Server) { s.Retention = l.duration(at) },
	},
	{
		name: "dead-retention", def: "90d", doc: "How long runs that gave up are kept.", schema: durationSchema,
		set: func(l *loader, at place, s *Server) { s.DeadRetention = l.duration(at) },
	},
	{
		name: "concurrency", def: "64", doc: "Commands and requests at once.", schema: count(1),
		set: func(l *loader, at place, s *Server) { s.Concurrency = l.number(at, 1) },
	},
	{
		name: "durability", def: "full", doc: "When a start is acknowledged: when it is on the disk, or when the operating system has it.",
		schema: func() *jsonschema.Schema { return enum("full", "os") },
		set:    func(l *loader, at place, s *Server) { s.Durability = l.word(at, "full", "os") },
	},
	{
		name: "max-body", def: "1MiB", doc: "Largest body of a request to the control API.", schema: sizeSchema,
		set: func(l *loader, at place, s *Server) { s.MaxBody = l.bytes(at) },
	},
	{
		name: "env-inherit", doc: inheritDoc + "For all steps, jobs and notifiers. The variable has commas between them.", schema: inheritSchema,
		set: func(l *loader, at place, s *Server) { s.Inherit = l.inherit(at) },
	},
	{
		name: "max-connections", doc: "Open connections at the address, of the API and the gateway; unless said, what RLIMIT_NOFILE allows, 4096 at most. The socket has room of its own.", schema: count(1),
		set: func(l *loader, at place, s *Server) { s.MaxConnections = l.number(at, 1) },
	},
	{
		name: "max-connections-per-address", doc: "The same from one IP address, or from a /64 network of IPv6; half of max-connections unless said.", schema: count(1),
		set: func(l *loader, at place, s *Server) { s.MaxConnectionsPerAddress = l.number(at, 1) },
	},
}

func listenSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `^(\[[^\[\]]*\]|[^:\[\]]*):(0+|` + portPattern + `)$`}
}

func (l *loader) checkListen(at place, text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		l.bad(at, "%q is not an address such as 127.0.0.1:7878", text)
		return false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		l.bad(at, "%q: %q is not a port", text, port)
		return false
	}
	return true
}

// loopback reports whether only this machine can reach the address. A name other
// than localhost may resolve to anything, and no host means all interfaces.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && loopbackHost(host)
}

func loopbackHost(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

var hostName = lazyregexp.New(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)

// hosts reads a list of hosts. A variable or a flag has them with commas.
func (l *loader) hosts(at place) (list []string) {
	if at.node.origin != "" && at.node.kind == stringKind {
		n := &node{kind: listKind, origin: at.node.origin}
		for part := range strings.SplitSeq(at.node.text, ",") {
			n.items = append(n.items, given(strings.TrimSpace(part), at.node.origin))
		}
		at.node = n
	}
	ok := l.list(at, func(at place) {
		text, ok := l.scalar(at)
		if !ok {
			return
		}
		host, msg := parseHost(text)
		if msg == "" && slices.Contains(list, host) {
			msg = "is given already"
		}
		if msg != "" {
			l.bad(at, "%q %s", text, msg)
			return
		}
		list = append(list, host)
	})
	if ok {
		l.value(at, strings.Join(list, ","))
	}
	return list
}

// parseHost returns a host in the form that tells it from others, or what is
// wrong with it.
func parseHost(text string) (host, msg string) {
	if ip, err := netip.ParseAddr(text); err == nil {
		if ip.Zone() != "" || ip.IsUnspecified() {
			return "", "is not an address that somebody asks for"
		}
		return ip.String(), ""
	}
	host = strings.ToLower(strings.TrimSuffix(text, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	if _, err := strconv.ParseUint(last, 0, 64); err == nil || len(host) > 253 || !hostName.MatchString(host) {
		return "", "is not a host name such as tideover.example.com or an IP address, without port"
	}
	return host, ""
}

// socket checks the path of the socket.
func (l *loader) socket(at place, path string) string {
	if len(path) > maxSocket {
		l.bad(at, "%q is %d bytes long; a unix socket's path has at most %d: set server.socket to a shorter one", path, len(path), maxSocket)
	}
	l.value(at, path)
	return path
}

// defaultData returns the folder that the system has for such things.
func (l *loader) defaultData(at place) string {
	dir := l.env["XDG_STATE_HOME"]
	here := at.child("data", given("", "default"))
	switch home := l.env.home(); {
	case filepath.IsAbs(dir): // the specification says to ignore relative ones
	case runtime.GOOS == "windows" && l.env["LOCALAPPDATA"] != "":
		dir = l.env["LOCALAPPDATA"]
	case home != "":
		dir = filepath.Join(home, ".local", "state")
	default:
		l.bad(here, "there is no home folder for the data; set server.data")
		return ""
	}
	dir = filepath.Join(dir, "tideover")
	l.value(here, dir)
	return dir
}

func (e environment) home() string {
	if runtime.GOOS == "windows" {
		return e["USERPROFILE"]
	}
	return e["HOME"]
}
