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

	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// defaultListen is the default of listen.
const defaultListen = "127.0.0.1:7878"

// maxSocket is how long the path of a unix socket may be, on the system that
// allows least.
const maxSocket = 103

// serverReader reads the section server.
type serverReader struct{ *sharedReader }

// section reads the section with the variables and the flags over it. It returns the
// places of the keys that are present.
func (r serverReader) section(at place, s *Server) (found map[string]place) {
	if at.Empty() {
		at.Node = strictyaml.NewMap()
	}
	if at.Node.Kind == strictyaml.KindMap {
		at.Node = layers(r.sharedReader, at, serverKeys)
	}
	found, _ = strictyaml.Object(r, at, serverKeys, s)
	r.defaultPlaces(at, found, s)
	if here, ok := found["max-connections-per-address"]; ok && s.MaxConnections > 0 && s.MaxConnectionsPerAddress > s.MaxConnections {
		here.Bad("%d is more than max-connections, %d", s.MaxConnectionsPerAddress, s.MaxConnections)
	}
	if listen, ok := found["listen"]; ok && s.Listen != "" && !loopback(s.Listen) {
		checkOpen(listen, found, s)
	}
	return found
}

// checkOpen checks what an address needs that other machines can reach.
func checkOpen(listen place, found map[string]place, s *Server) {
	if _, ok := found["token"]; !ok {
		listen.Bad("%q is reachable from other machines and no token is set; set server.token, or listen on 127.0.0.1", s.Listen)
	}
	if hosts, ok := found["hosts"]; !ok || hosts.Node.Kind == strictyaml.KindList && len(hosts.Node.Items) == 0 {
		listen.Bad("%q is reachable from other machines; set server.hosts to the host names that clients use, or listen on 127.0.0.1", s.Listen)
	}
}

var serverKeys = []key[serverReader, Server]{
	{
		Name: "listen", Default: defaultListen, Doc: "Address that the control API and the page listen on. An address that is not loopback requires token and hosts.",
		Schema: listenSchema,
		Set: func(_ serverReader, at place, s *Server) {
			if text, ok := at.Text(); ok && checkListen(at, text) {
				s.Listen = text
				at.Record(text)
			}
		},
	},
	{
		Name: "hosts", Doc: "Further host names and IP addresses, without port, by which clients reach the server; requests for other hosts are rejected. Required if listen is not loopback. In the environment variable, separate them by commas.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: `^[A-Za-z0-9_:.-]+$`}, UniqueItems: true}
		},
		Set: func(_ serverReader, at place, s *Server) { s.Hosts = readHosts(at) },
	},
	{
		Name: "data", Doc: "Folder for all state, relative to the folder of this file. Default: $XDG_STATE_HOME/tideover or ~/.local/state/tideover.", Schema: strictyaml.ScalarSchema,
		Set: func(r serverReader, at place, s *Server) {
			if text, ok := at.Text(); ok {
				s.Data = r.path(at, text)
				at.Record(s.Data)
			}
		},
	},
	{
		Name: "socket", Doc: "Path of the Unix socket of the control API. Default: tideover.sock in data.", Schema: strictyaml.ScalarSchema,
		Set: func(r serverReader, at place, s *Server) {
			if text, ok := at.Text(); ok {
				s.Socket = checkSocket(at, r.path(at, text))
			}
		},
	},
	{
		Name: "token", Doc: "Token that clients must send, as a reference: ${env:NAME} or ${file:path}. Default: a token that is generated in data.",
		Schema: referenceSchema,
		Set:    func(r serverReader, at place, s *Server) { s.Token = r.token(at) },
	},
	{
		Name: "tls", Doc: "Certificate and key for TLS. The files may be replaced while the server runs. The environment variables are TIDEOVER_SERVER_TLS_CERT and TIDEOVER_SERVER_TLS_KEY. Default: no TLS.", Inside: []string{"cert", "key"},
		Schema: serverTLSSchema,
		Set:    func(r serverReader, at place, s *Server) { r.readTLS(at, &s.TLS) },
	},
	{
		Name: "retention", Default: "14d", Doc: "How long ended runs are kept.", Schema: strictyaml.DurationSchema,
		Set: func(_ serverReader, at place, s *Server) { s.Retention = strictyaml.ReadDuration(at) },
	},
	{
		Name: "dead-retention", Default: "90d", Doc: "How long runs that gave up are kept.", Schema: strictyaml.DurationSchema,
		Set: func(_ serverReader, at place, s *Server) { s.DeadRetention = strictyaml.ReadDuration(at) },
	},
	{
		Name: "concurrency", Default: "64", Doc: "Most commands and requests at the same time.", Schema: strictyaml.IntSchema(1),
		Set: func(_ serverReader, at place, s *Server) { s.Concurrency = strictyaml.ReadInt(at, 1) },
	},
	{
		Name: "durability", Default: "full", Doc: "When a start is acknowledged: full after it is synced to disk, os after it is written to the operating system.",
		Schema: func() *jsonschema.Schema { return strictyaml.WordSchema("full", "os") },
		Set:    func(_ serverReader, at place, s *Server) { s.Durability = strictyaml.ReadWord(at, "full", "os") },
	},
	{
		Name: "max-body", Default: "1MiB", Doc: "Largest body of a request to the control API.", Schema: strictyaml.SizeSchema,
		Set: func(_ serverReader, at place, s *Server) { s.MaxBody = strictyaml.ReadSize(at) },
	},
	{
		Name: "env-inherit", Doc: inheritDoc + "For all steps, jobs and notifiers. The variable has commas between them.", Schema: inheritSchema,
		Set: func(_ serverReader, at place, s *Server) { s.Inherit = readInherit(at) },
	},
	{
		Name: "max-connections", Doc: "Most open TCP connections of the API and the gateway together. Connections to the Unix socket are not counted. Default: what RLIMIT_NOFILE allows, at most 4096.", Schema: strictyaml.IntSchema(1),
		Set: func(_ serverReader, at place, s *Server) { s.MaxConnections = strictyaml.ReadInt(at, 1) },
	},
	{
		Name: "max-connections-per-address", Doc: "Most open connections from one IP address, or from one /64 network of IPv6. Default: half of max-connections.", Schema: strictyaml.IntSchema(1),
		Set: func(_ serverReader, at place, s *Server) { s.MaxConnectionsPerAddress = strictyaml.ReadInt(at, 1) },
	},
}

func listenSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `^(\[[^\[\]]*\]|[^:\[\]]*):(0+|` + portPattern + `)$`}
}

// checkListen reports whether the text is an address to listen on.
func checkListen(at place, text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		at.Bad("%q is not an address such as 127.0.0.1:7878", text)
		return false
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		at.Bad("%q: %q is not a port", text, port)
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

// readHosts reads a list of hosts. A variable or a flag has them with commas.
func readHosts(at place) (list []string) {
	if at.Node.Origin != "" && at.Node.Kind == strictyaml.KindText {
		at.Node = at.Node.SplitText()
	}
	ok := at.Each(func(at place) {
		text, ok := at.Text()
		if !ok {
			return
		}
		host, msg := parseHost(text)
		if msg == "" && slices.Contains(list, host) {
			msg = "is listed twice"
		}
		if msg != "" {
			at.Bad("%q %s", text, msg)
			return
		}
		list = append(list, host)
	})
	if ok {
		at.Record(strings.Join(list, ","))
	}
	return list
}

// parseHost returns the normal form of a host, or what is wrong with it.
func parseHost(text string) (host, msg string) {
	if ip, err := netip.ParseAddr(text); err == nil {
		if ip.Zone() != "" || ip.IsUnspecified() {
			return "", "is not an address that clients can send requests to"
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

// checkSocket checks the path of the socket.
func checkSocket(at place, path string) string {
	if len(path) > maxSocket {
		at.Bad("%q is %d bytes long; a unix socket's path has at most %d: set server.socket to a shorter one", path, len(path), maxSocket)
	}
	at.Record(path)
	return path
}

// defaultData returns the folder that the system has for such things.
func (r serverReader) defaultData(at place) string {
	dir := r.env["XDG_STATE_HOME"]
	here := at.Child("data", strictyaml.NewText("", "default"))
	switch home := r.env.home(); {
	case filepath.IsAbs(dir): // the specification says to ignore relative ones
	case runtime.GOOS == "windows" && r.env["LOCALAPPDATA"] != "":
		dir = r.env["LOCALAPPDATA"]
	case home != "":
		dir = filepath.Join(home, ".local", "state")
	default:
		here.Bad("the home folder is unknown, so there is no default for server.data; set it")
		return ""
	}
	dir = filepath.Join(dir, "tideover")
	here.Record(dir)
	return dir
}

func (e environment) home() string {
	if runtime.GOOS == "windows" {
		return e["USERPROFILE"]
	}
	return e["HOME"]
}
