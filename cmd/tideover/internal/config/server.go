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
		listen.Bad("%q is open to others, and there is no token; set server.token, or listen on 127.0.0.1", s.Listen)
	}
	if hosts, ok := found["hosts"]; !ok || hosts.Node.Kind == strictyaml.KindList && len(hosts.Node.Items) == 0 {
		listen.Bad("%q is open to others, who ask for a host by its name; set server.hosts to the names they use, or listen on 127.0.0.1", s.Listen)
	}
}

var serverKeys = []key[serverReader, Server]{
	{
		Name: "listen", Default: defaultListen, Doc: "Address of the control API and the page. One that is not loopback needs a token and hosts.",
		Schema: listenSchema,
		Set: func(_ serverReader, at place, s *Server) {
			if text, ok := at.Text(); ok && checkListen(at, text) {
				s.Listen = text
				at.Record(text)
			}
		},
	},
	{
		Name: "hosts", Doc: "Further host names and IP addresses under which the server may be asked, without port; requests for others are refused. Needed if listen is not loopback. The variable has commas between them.",
		Schema: func() *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string", Pattern: `^[A-Za-z0-9_:.-]+$`}, UniqueItems: true}
		},
		Set: func(_ serverReader, at place, s *Server) { s.Hosts = readHosts(at) },
	},
	{
		Name: "data", Doc: "Folder of all state, relative to the file's; $XDG_STATE_HOME/tideover or ~/.local/state/tideover unless said.", Schema: strictyaml.ScalarSchema,
		Set: func(r serverReader, at place, s *Server) {
			if text, ok := at.Text(); ok {
				s.Data = r.path(at, text)
				at.Record(s.Data)
			}
		},
	},
	{
		Name: "socket", Doc: "Path of the unix socket of the control API; tideover.sock in data unless said.", Schema: strictyaml.ScalarSchema,
		Set: func(r serverReader, at place, s *Server) {
			if text, ok := at.Text(); ok {
				s.Socket = checkSocket(at, r.path(at, text))
			}
		},
	},
	{
		Name: "token", Doc: "Secret that callers present, as a reference: ${env:NAME} or ${file:path}; one is generated in data unless said.",
		Schema: referenceSchema,
		Set:    func(r serverReader, at place, s *Server) { s.Token = r.token(at) },
	},
	{
		Name: "tls", Doc: "Files to speak TLS with, which may be renewed while they are used; not spoken unless said. The variables are TIDEOVER_SERVER_TLS_CERT and so on.", Inside: []string{"cert", "key"},
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
		Name: "concurrency", Default: "64", Doc: "Commands and requests at once.", Schema: strictyaml.IntSchema(1),
		Set: func(_ serverReader, at place, s *Server) { s.Concurrency = strictyaml.ReadInt(at, 1) },
	},
	{
		Name: "durability", Default: "full", Doc: "When a start is acknowledged: when it is on the disk, or when the operating system has it.",
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
		Name: "max-connections", Doc: "Open connections at the address, of the API and the gateway; unless said, what RLIMIT_NOFILE allows, 4096 at most. The socket has room of its own.", Schema: strictyaml.IntSchema(1),
		Set: func(_ serverReader, at place, s *Server) { s.MaxConnections = strictyaml.ReadInt(at, 1) },
	},
	{
		Name: "max-connections-per-address", Doc: "The same from one IP address, or from a /64 network of IPv6; half of max-connections unless said.", Schema: strictyaml.IntSchema(1),
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
			msg = "is given already"
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
		here.Bad("there is no home folder for the data; set server.data")
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
