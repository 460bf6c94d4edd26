package config_test

import (
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
)

func TestLocate(t *testing.T) {
	home := []string{"HOME=/home/me"}
	for _, c := range []struct {
		name, text   string
		environ      []string
		socket, data string
		err          string
	}{
		{"defaults", "version: 1\n", home, "/home/me/.local/state/tideover/tideover.sock", "/home/me/.local/state/tideover", ""},
		{"an empty file", "\n", home, "/home/me/.local/state/tideover/tideover.sock", "/home/me/.local/state/tideover", ""},
		{"an empty section", "version: 1\nserver:\n", home, "/home/me/.local/state/tideover/tideover.sock", "/home/me/.local/state/tideover", ""},
		{"the file", "version: 1\nserver: {data: d}\n", home, "/etc/d/tideover.sock", "/etc/d", ""},
		{"a socket elsewhere", "version: 1\nserver: {socket: ~/s}\n", home, "/home/me/s", "/home/me/.local/state/tideover", ""},
		{"a variable", "version: 1\nserver: {data: d}\n", append(home, "TIDEOVER_SERVER_DATA=/v", "TIDEOVER_SERVER_OTHER=1"), "/v/tideover.sock", "/v", ""},
		{"a secret that is not here", "version: 1\nserver: {data: d, token: '${env:NONE}'}\nnotify: {n: {slack: '${env:NONE}'}}\n", home, "/etc/d/tideover.sock", "/etc/d", ""},
		{"everything else is wrong", "version: 2\nservr: 1\nserver: {data: d, lisen: 1, concurrency: 0}\nworkflows: []\nsessions: {s: {start: []}}\n", home, "/etc/d/tideover.sock", "/etc/d", ""},
		{"the section is wrong", "version: 1\nserver: [data]\n", home, "", "", "tideover.yaml:2:9: server: a list, where a map is expected"},
		{"the folder is wrong", "version: 1\nserver: {data: {}}\n", home, "", "", "server.data: a map, where a text is expected"},
		{"it is no map", "hello\n", home, "", "", "a text, where a map is expected"},
		{"it is no YAML", "version: [\n", home, "", "", "tideover.yaml:1:"},
		{"there is no home", "version: 1\n", []string{"A=b"}, "", "", "the home folder is unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			socket, data, err := config.Locate(config.Source{Path: "/etc/tideover.yaml", Data: []byte(c.text), Environ: c.environ})
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("Locate = %v, want %q in it", err, c.err)
				}
				return
			}
			if err != nil || socket != c.socket || data != c.data {
				t.Errorf("Locate = %q, %q, %v, want %q and %q", socket, data, err, c.socket, c.data)
			}
		})
	}
	if _, _, err := config.Locate(config.Source{Path: "/no/such/file.yaml", Environ: home}); err == nil {
		t.Error("a file that is not there has a place")
	}
}

// TestLocateIsWhereTheServerIs checks that Locate returns the same paths as Load.
func TestLocateIsWhereTheServerIs(t *testing.T) {
	cfg := full(t)
	socket, data, err := config.Locate(config.Source{Path: "testdata/full.yaml", Environ: environ})
	if err != nil || socket != cfg.Server.Socket || data != cfg.Server.Data {
		t.Errorf("Locate = %q, %q, %v, want %q and %q", socket, data, err, cfg.Server.Socket, cfg.Server.Data)
	}
}
