package config

import (
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/cmd/tideover/internal/template"
	"github.com/tideover/tideover/internal/hosts"
	"github.com/tideover/tideover/internal/lazyregexp"
)

// defaultListen is the default of server.listen and gateway.listen.
const defaultListen = "127.0.0.1:7878"

// maxSocket is the most bytes in the path of a Unix socket that all supported systems
// allow.
const maxSocket = 103

// serverReader reads the section server.
type serverReader struct{ *sharedReader }

// section reads the section server; environment variables and flags override the file. It
// returns the places of the keys that are present.
func (r serverReader) section(at place, s *Server) (found map[string]place) {
	found = r.layered(at, r.serverKeys(s))
	r.defaultPlaces(at, found, s)
	if here, ok := found["max-connections-per-address"]; ok && s.MaxConnections > 0 && s.MaxConnectionsPerAddress > s.MaxConnections {
		here.Bad("%d is more than max-connections, %d", s.MaxConnectionsPerAddress, s.MaxConnections)
	}
	if users, ok := found["users"]; ok {
		r.checkUsers(users, s)
	}
	if listen, ok := found["listen"]; ok && s.Listen != "" && !loopback(s.Listen) {
		checkOpen(listen, found, s)
	}
	return found
}

// checkOpen requires token and hosts for an address that other machines can reach.
func checkOpen(listen place, found map[string]place, s *Server) {
	if _, ok := found["token"]; !ok {
		listen.Bad("%q is reachable from other machines and no token is set; set server.token, or listen on 127.0.0.1", s.Listen)
	}
	if hosts, ok := found["hosts"]; !ok || hosts.Node.Kind == strictyaml.KindList && len(hosts.Node.Items) == 0 {
		listen.Bad("%q is reachable from other machines; set server.hosts to the host names that clients use, or listen on 127.0.0.1", s.Listen)
	}
}

// serverKeys are the keys of the section server.
func (r serverReader) serverKeys(s *Server) []key {
	return []key{
		strictyaml.Parsed(&s.Listen, "listen", defaultListen, listenSchema, parseListen,
			"Address that the control API and the page listen on. An address that is not loopback requires token and hosts."),
		strictyaml.Field(&s.Hosts, "hosts", "", patternsSchema(`^[A-Za-z0-9_:.-]+$`), readHosts,
			"Further host names and IP addresses, without port, by which clients reach the server; other hosts are rejected. Required if listen is not loopback. In the environment variable, separate them by commas."),
		strictyaml.Field(&s.AllowHosts, "allow-hosts", "", patternsSchema(`^([A-Za-z0-9_:.-]+|\[[0-9A-Fa-f:.]+\])(:`+portPattern+`)?$`), readAllowHosts,
			"Hosts that templates in the URL of a step may choose, as host or host:port; without a port, those of http and https. In the environment variable, separate them by commas. Takes effect without a restart."),
		strictyaml.Field(&s.Data, "data", "", strictyaml.ScalarSchema, r.filePath,
			"Folder for all state, relative to the folder of this file. Default: $XDG_STATE_HOME/tideover or ~/.local/state/tideover."),
		strictyaml.Field(&s.Socket, "socket", "", strictyaml.ScalarSchema, r.socket,
			"Path of the Unix socket of the control API. Default: tideover.sock in data."),
		strictyaml.Field(&s.Token, "token", "", referenceSchema, r.token,
			"Token that clients must send, as a reference: ${env:NAME} or ${file:path}. Default: a token that is generated in data."),
		strictyaml.Field(&s.Users, "users", "", r.usersSchema, r.readUsers,
			"Users with tokens of their own, by name. The history of a run has their names, and a question can be for certain users."),
		strictyaml.Field(&s.CallbackKey, "callback-key", "", referenceSchema, r.callbackKey,
			"Secret of at least 32 characters that signs callback URLs, as a reference: ${env:NAME} or ${file:path}. All processes of a cluster need the same. Default: a key that is generated in data; none in a cluster."),
		{
			Name: "tls", Doc: "Certificate and key for TLS. The files may be replaced while the server runs. The environment variables are TIDEOVER_SERVER_TLS_CERT and TIDEOVER_SERVER_TLS_KEY. Default: no TLS.", Inside: []string{"cert", "key"},
			Schema: r.serverTLSSchema,
			Set:    func(at place) { r.readTLS(at, &s.TLS) },
		},
		strictyaml.Duration(&s.Retention, "retention", "14d", "How long ended runs are kept."),
		strictyaml.Duration(&s.DeadRetention, "dead-retention", "90d",
			"How long runs that gave up are kept."),
		strictyaml.Field(&s.OutputStorage, "output-storage", "1GiB", strictyaml.SizeSchema, readOutputStorage,
			"Most bytes on disk of the outputs of attempts, at least 1MiB. The oldest outputs are removed first."),
		strictyaml.Duration(&s.OutputRetention, "output-retention", "14d",
			"How long the outputs of attempts are kept, at most until output-storage is full."),
		strictyaml.Int(&s.Concurrency, "concurrency", "64", 1,
			"Most commands and requests at the same time."),
		strictyaml.Word(&s.Durability, "durability", "full", []string{"full", "os"},
			"When a start is acknowledged: full after it is synced to disk, os after it is written to the operating system."),
		strictyaml.Size(&s.MaxBody, "max-body", "1MiB", "Largest body of a request to the control API."),
		strictyaml.Field(&s.Inherit, "env-inherit", "", inheritSchema, readInherit,
			inheritDoc+" For all steps, jobs and notifiers. The variable has commas between them."),
		strictyaml.Int(&s.MaxConnections, "max-connections", "", 1,
			"Most open TCP connections of the API and the gateway together. Connections to the Unix socket are not counted. Default: what RLIMIT_NOFILE allows, at most 4096."),
		strictyaml.Int(&s.MaxConnectionsPerAddress, "max-connections-per-address", "", 1,
			"Most open connections from one IP address, or from one /64 network of IPv6. Default: half of max-connections."),
	}
}

func readOutputStorage(at place) int64 {
	n := strictyaml.ReadSize(at)
	if n > 0 && n < output.MinLimit {
		at.Bad("%q is too little: the outputs of attempts need at least %dMiB", at.Node.Text, output.MinLimit>>20)
	}
	return n
}

func listenSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `^(\[[^\[\]]*\]|[^:\[\]]*):(0+|` + portPattern + `)$`}
}

// parseListen parses an address to listen on, host:port. The host may be empty.
func parseListen(text string) (string, error) {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return "", fmt.Errorf("%q is not an address such as 127.0.0.1:7878", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("%q: %q is not a port", text, port)
	}
	return text, nil
}

// loopback reports whether only this machine can reach the address. It is false for a
// host name other than localhost, which may resolve to any address, and for an empty
// host, which means all interfaces.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && hosts.IsLoopback(host)
}

var hostName = lazyregexp.New(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?$`)

// readHosts reads a list of hosts. In a variable or a flag, commas separate them.
func readHosts(at place) []string {
	list := readList(at, parseHost)
	at.Record(strings.Join(list, ","))
	return list
}

// readAllowHosts reads a list of hosts with or without port. In a variable or a flag, commas separate them.
func readAllowHosts(at place) hosts.Set {
	list := readList(at, func(text string) (host, msg string) {
		if host, msg = parseHost(strings.Trim(text, "[]")); msg == "" {
			return host, ""
		}
		name, port, err := net.SplitHostPort(text)
		host, msg = parseHost(name)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || msg != "" {
			return "", "is not a host such as api.example.com, 192.0.2.7 or api.example.com:8443"
		}
		return net.JoinHostPort(host, port), ""
	})
	at.Record(strings.Join(list, ","))
	return hosts.New(list)
}

// parseHost returns the normal form of a host name or an IP address, or in msg what is
// wrong with it.
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

// socket reads the path of the Unix socket.
func (r serverReader) socket(at place) string {
	text, ok := at.Text()
	if !ok {
		return ""
	}
	return checkSocket(at, r.path(at, text))
}

// checkSocket records the path of the Unix socket and returns it. A path that is longer
// than maxSocket is a problem.
func checkSocket(at place, path string) string {
	if len(path) > maxSocket {
		at.Bad("%q is %d bytes long; a unix socket's path has at most %d: set server.socket to a shorter one", path, len(path), maxSocket)
	}
	at.Record(path)
	return path
}

// defaultData returns the default of server.data: the folder tideover in the system's
// folder for the state of programs. If that can't be found, it records a problem and
// returns "".
func (r serverReader) defaultData(at place) string {
	dir := r.env["XDG_STATE_HOME"]
	here := at.Child("data", strictyaml.NewText("", "default"))
	switch home := r.env.home(); {
	case filepath.IsAbs(dir): // the XDG specification says to ignore relative paths
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

// Gateway has the settings of the gateway, through which clients reach the providers.
type Gateway struct {
	Token  *template.SecretText // clients must send it; nil means that only clients on this machine can connect
	Listen string               // host:port for `tideover gateway`; `tideover serve` uses Server.Listen

	KeepRequests int // how many recent requests are kept for the page; 0 means none
}

// readGateway reads the section gateway; environment variables and flags override the file.
func readGateway(r *sharedReader, at place, g *Gateway) {
	found := r.layered(at, gatewayKeys(r, g))
	listen, said := found["listen"]
	if _, token := found["token"]; said && !token && g.Listen != "" && !loopback(g.Listen) {
		listen.Bad("%q is reachable from other machines and no token is set; set gateway.token, or listen on 127.0.0.1", g.Listen)
	}
}

func gatewayKeys(r *sharedReader, g *Gateway) []key {
	return []key{
		strictyaml.Field(&g.Token, "token", "", referenceSchema, r.token,
			"Token that clients must send, as a reference: ${env:NAME} or ${file:path}. Without a token only clients on this machine can connect."),
		strictyaml.Parsed(&g.Listen, "listen", defaultListen, listenSchema, parseListen,
			"Address that tideover gateway listens on; tideover serve uses server.listen. An address that is not loopback requires a token."),
		strictyaml.Int(&g.KeepRequests, "keep-requests", "2000", 0,
			"Recent requests kept in memory for the page, the API and tideover requests: those that failed, waited or moved, and a sample of the others. 0 keeps none."),
	}
}
