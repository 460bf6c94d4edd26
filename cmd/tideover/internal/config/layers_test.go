package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

// origins returns the text and the origin of each value, by path.
func origins(t *testing.T, src config.Source) map[string]string {
	t.Helper()
	cfg, err := config.Load(src)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, v := range cfg.Values() {
		m[v.Path] = v.Text + " from " + v.Origin
	}
	return m
}

func TestTheNearestLayerWins(t *testing.T) {
	file := []byte("version: 1\nserver:\n  listen: 127.0.0.1:1\n  retention: 1d\n  data: /file\n  concurrency: 3\n")
	got := origins(t, config.Source{
		Path: "/etc/tideover.yaml", Data: file,
		Environ: []string{
			"HOME=/home/me", "TIDEOVER_SERVER_LISTEN=127.0.0.1:2", "TIDEOVER_SERVER_RETENTION=2d", "TIDEOVER_SERVER_MAX_BODY=2MiB",
			"TIDEOVER_SERVER_TOKEN=token-of-PLANTED-1", "TIDEOVER_SERVER_DURABILITY=", "TIDEOVER_ATTEMPT=3", "TIDEOVER_SERVERS=x",
			"TIDEOVER_GATEWAY_LISTEN=127.0.0.1:4", "TIDEOVER_GATEWAY_TOKEN=token-of-PLANTED-2",
		},
		Flags: map[string]string{"listen": "127.0.0.1:3", "dead-retention": "3d", "gateway.listen": "127.0.0.1:5"},
	})
	for path, want := range map[string]string{
		"server.listen":         "127.0.0.1:3 from flag --listen",
		"server.dead-retention": "3d from flag --dead-retention",
		"server.retention":      "2d from env TIDEOVER_SERVER_RETENTION",
		"server.max-body":       "2MiB from env TIDEOVER_SERVER_MAX_BODY",
		"server.token":          "${env:TIDEOVER_SERVER_TOKEN} from env TIDEOVER_SERVER_TOKEN",
		"server.concurrency":    "3 from /etc/tideover.yaml:6",
		"server.data":           "/file from /etc/tideover.yaml:5",
		"server.socket":         "/file/tideover.sock from default",
		"server.durability":     "full from default",
		"gateway.token":         "${env:TIDEOVER_GATEWAY_TOKEN} from env TIDEOVER_GATEWAY_TOKEN",
		"gateway.listen":        "127.0.0.1:5 from flag --listen",
	} {
		if got[path] != want {
			t.Errorf("%s = %s, want %s", path, got[path], want)
		}
	}
}

func TestWithoutAFileThereAreDefaults(t *testing.T) {
	got := origins(t, config.Source{Environ: []string{"HOME=/home/me"}})
	want := []string{
		"alarm.amplification = 2 from default", "alarm.for = 30s from default", "alarm.min-attempts = 50 from default",
		"audit.file = /home/me/.local/state/tideover/audit.jsonl from default", "audit.keep = 5 from default", "audit.max-size = 10MB from default",
		"gateway.keep-requests = 2000 from default",
		"gateway.listen = 127.0.0.1:7878 from default",
		"server.concurrency = 64 from default", "server.data = /home/me/.local/state/tideover from default",
		"server.dead-retention = 90d from default", "server.durability = full from default",
		"server.listen = 127.0.0.1:7878 from default", "server.max-body = 1MiB from default",
		"server.output-retention = 14d from default", "server.output-storage = 1GiB from default",
		"server.retention = 14d from default", "server.socket = /home/me/.local/state/tideover/tideover.sock from default",
	}
	var list []string
	for path, v := range got {
		list = append(list, path+" = "+v)
	}
	slices.Sort(list)
	if !slices.Equal(list, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(list, "\n"), strings.Join(want, "\n"))
	}
	if got := origins(t, config.Source{Environ: []string{"HOME=/home/me", "XDG_STATE_HOME=/state"}})["server.data"]; got != "/state/tideover from default" {
		t.Errorf("with XDG_STATE_HOME: %s", got)
	}
	if got := origins(t, config.Source{Environ: []string{"HOME=/home/me", "XDG_STATE_HOME=rel"}})["server.data"]; got != "/home/me/.local/state/tideover from default" {
		t.Errorf("with a relative XDG_STATE_HOME: %s", got)
	}
}

func TestPathsStartWhereTheyAreWritten(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	file := []byte("version: 1\nserver: {data: state, socket: ~/s}\n")
	src := config.Source{Path: "/etc/x/tideover.yaml", Data: file, Environ: []string{"HOME=/home/me"}}
	if got := origins(t, src); got["server.data"] != "/etc/x/state from /etc/x/tideover.yaml:2" || got["server.socket"] != "/home/me/s from /etc/x/tideover.yaml:2" {
		t.Errorf("from the file: %s, %s", got["server.data"], got["server.socket"])
	}
	src.Flags = map[string]string{"data": "state"}
	if got, want := origins(t, src)["server.data"], filepath.Join(wd, "state")+" from flag --data"; got != want {
		t.Errorf("from a flag: %s, want %s", got, want)
	}
}

func TestBadLayers(t *testing.T) {
	for _, c := range []struct {
		name  string
		env   []string
		flags map[string]string
		want  string
	}{
		{"unknown variable", []string{"TIDEOVER_SERVER_LISEN=x"}, nil, `env TIDEOVER_SERVER_LISEN: key "lisen" is unknown; did you mean "listen"?`},
		{"unknown flag", nil, map[string]string{"lisen": "x"}, `flag --lisen: key "lisen" is unknown; did you mean "listen"?`},
		{"bad variable", []string{"TIDEOVER_SERVER_RETENTION=soon"}, nil, `env TIDEOVER_SERVER_RETENTION: server.retention: "soon" is not a duration such as 500ms, 30s, 1m30s or 2d`},
		{"bad flag", nil, map[string]string{"concurrency": "many"}, `flag --concurrency: server.concurrency: "many" is not a whole number of 1 or more`},
		{"open without a token", []string{"TIDEOVER_SERVER_LISTEN=:80"}, nil, `env TIDEOVER_SERVER_LISTEN: server.listen: ":80" is reachable from other machines and no token is set; set server.token, or listen on 127.0.0.1
env TIDEOVER_SERVER_LISTEN: server.listen: ":80" is reachable from other machines; set server.hosts to the host names that clients use, or listen on 127.0.0.1`},
		{"a bad host", []string{"TIDEOVER_SERVER_HOSTS=a.example, b:80"}, nil, `env TIDEOVER_SERVER_HOSTS: server.hosts[1]: "b:80" is not a host name such as tideover.example.com or an IP address, without port`},
		{"unknown variable of the gateway", []string{"TIDEOVER_GATEWAY_LISEN=x"}, nil, `env TIDEOVER_GATEWAY_LISEN: key "lisen" is unknown; did you mean "listen"?`},
		{"unknown flag of the gateway", nil, map[string]string{"gateway.port": "x"}, `flag --port: key "port" is unknown; use listen`},
		{"an open gateway without a token", []string{"TIDEOVER_GATEWAY_LISTEN=:80"}, nil, `env TIDEOVER_GATEWAY_LISTEN: gateway.listen: ":80" is reachable from other machines and no token is set; set gateway.token, or listen on 127.0.0.1`},
		{"a token that is short", []string{"TIDEOVER_GATEWAY_TOKEN=fifteen-PLANTED", "TIDEOVER_SERVER_TOKEN=PLANTED"}, nil,
			"env TIDEOVER_GATEWAY_TOKEN: gateway.token: ${env:TIDEOVER_GATEWAY_TOKEN} has 15 characters, at least 16 are needed\n" +
				"env TIDEOVER_SERVER_TOKEN: server.token: ${env:TIDEOVER_SERVER_TOKEN} has 7 characters, at least 16 are needed"},
		{"a secret on the command line", nil, map[string]string{"token": "PLANTED"}, `flag --token: server.token: a secret must not be in the file; write a reference: ${env:…} or ${file:…}`},
		{"no home", []string{"HOME="}, nil, "default: server.data: the home folder is unknown, so there is no default for server.data; set it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Load(config.Source{Environ: append([]string{"HOME=/home/me"}, c.env...), Flags: c.flags})
			if err == nil || err.Error() != c.want {
				t.Errorf("Check = %v, want %s", err, c.want)
			}
		})
	}
}

func TestOpenWithATokenAndHostsIsAllowed(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:80", "[::]:80", "example.com:80"} {
		env := []string{"HOME=/home/me", "TIDEOVER_SERVER_LISTEN=" + listen, "TIDEOVER_SERVER_TOKEN=0123456789abcdef", "TIDEOVER_SERVER_HOSTS=a.example, 192.0.2.1"}
		cfg, err := config.Load(config.Source{Environ: env})
		if err != nil || !slices.Equal(cfg.Server.Hosts, []string{"a.example", "192.0.2.1"}) {
			t.Errorf("%s with a token and hosts: %+v, %v", listen, cfg, err)
		}
		if _, err := config.Load(config.Source{Environ: append(env[:2:2], env[3])}); err == nil || !strings.Contains(err.Error(), "server.token") {
			t.Errorf("%s without a token: %v", listen, err)
		}
		if _, err := config.Load(config.Source{Environ: env[:3]}); err == nil || !strings.Contains(err.Error(), "server.hosts") {
			t.Errorf("%s without hosts: %v", listen, err)
		}
	}
	for _, listen := range []string{"localhost:0", "127.9.9.9:1", "[::1]:80", "[::ffff:127.0.0.1]:80"} {
		if _, err := config.Load(config.Source{Environ: []string{"HOME=/home/me", "TIDEOVER_SERVER_LISTEN=" + listen}}); err != nil {
			t.Errorf("%s: %v", listen, err)
		}
	}
}

func TestAMissingFileIsAnError(t *testing.T) {
	if _, err := config.Load(config.Source{Path: "testdata/none.yaml", Environ: environ}); !os.IsNotExist(unwrapped(err)) {
		t.Errorf("Load = %v", err)
	}
	if _, err := config.Load(config.Source{Data: make([]byte, 1<<20+1), Environ: environ}); err == nil || !strings.Contains(err.Error(), "at most 1048576") {
		t.Errorf("a file that is too large: %v", err)
	}
}

func unwrapped(err error) error {
	if u, ok := err.(interface{ Unwrap() error }); ok {
		return u.Unwrap()
	}
	return err
}

func TestAKeyOfAnotherSection(t *testing.T) {
	t.Parallel()
	for section, want := range map[string]string{
		"engine: {data: x}":          `key "data" is unknown; did you mean server.data?`,
		"server: {shards: 8}":        `key "shards" is unknown; did you mean engine.shards?`,
		"server: {keep-requests: 8}": `key "keep-requests" is unknown; did you mean gateway.keep-requests?`,
		"engine: {listen: x}":        `key "listen" is unknown; want nats, `, // server and gateway have it
		"engine: {shard: 8}":         `key "shard" is unknown; did you mean "shards"?`,
	} {
		_, err := config.Load(config.Source{Data: []byte("version: 1\n" + section + "\n"), Environ: []string{"HOME=/home/me"}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", section, err, want)
		}
	}
}
