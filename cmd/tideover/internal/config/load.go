package config

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/cmd/tideover/internal/strictyaml"
	"github.com/tideover/tideover/internal/secret"
)

// Source is what a configuration is made of.
type Source struct {
	Path     string            // of the file; empty means that there is none
	Data     []byte            // the file's content, if it has been read already; relative paths in it start at Path's folder
	Environ  []string          // as from os.Environ; nil means the process's
	Flags    map[string]string // given on the command line, by the server's key: {"listen": "127.0.0.1:0"}; or by another section's: "gateway.listen"
	Redactor *secret.Redactor  // learns the value of every secret that is looked up; may be nil
}

// digest identifies the content of a file.
type digest = [sha256.Size]byte

// Load reads and checks the configuration. Its error is [strictyaml.FieldErrors] when the
// content is at fault.
func Load(src Source) (*Config, error) {
	cfg, _, err := load(src)
	return cfg, err
}

// load is Load with the digest of the content, which a watcher needs also if the content
// is wrong.
func load(src Source) (*Config, digest, error) {
	f, err := openFile(src)
	if err != nil {
		return nil, digest{}, err
	}
	f.read()
	if err := f.doc.Err(); err != nil {
		return nil, f.cfg.digest, err
	}
	f.cfg.values, f.cfg.warnings = f.doc.Values(), f.doc.Warnings()
	return f.cfg, f.cfg.digest, nil
}

// content reads the file, and one byte more than is accepted at most.
func content(src Source) ([]byte, error) {
	if src.Data != nil || src.Path == "" {
		return src.Data, nil
	}
	// Before it is opened: opening a pipe waits for a writer.
	info, err := os.Stat(src.Path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("config: %s is not a regular file, but %s", src.Path, fileKind(info.Mode()))
	}
	if err := fileaccess.Check(src.Path, info, fileaccess.Others); err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	f, err := os.Open(src.Path)
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, strictyaml.MaxFile+1))
	if err != nil {
		return nil, fmt.Errorf("config: %w", err)
	}
	if len(data) == 0 {
		data = []byte{} // an empty file is not the same as none
	}
	return data, nil
}

// fileKind names the kind of a file that is not regular.
func fileKind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "a folder"
	case m&fs.ModeNamedPipe != 0:
		return "a pipe"
	case m&fs.ModeSocket != 0:
		return "a socket"
	}
	return "a device"
}

// environment is the variables by name.
type environment map[string]string

func newEnvironment(environ []string) environment {
	if environ == nil {
		environ = os.Environ()
	}
	env := make(environment, len(environ))
	for _, pair := range environ {
		if name, value, ok := strings.Cut(pair, "="); ok && name != "" {
			env[name] = value
		}
	}
	return env
}

func (e environment) lookup(name string) (string, bool) {
	v, ok := e[name]
	return v, ok
}

// withPrefix returns the names that start with the prefix, sorted.
func (e environment) withPrefix(prefix string) (names []string) {
	for name := range e {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// learnProxies adds the addresses of proxies that have a password to the redactor. The
// file does not refer to these variables, but net/http reads them, commands inherit them,
// and both may repeat them.
func (e environment) learnProxies(r *secret.Redactor) {
	if r == nil {
		return
	}
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		value := e[name]
		if !strings.Contains(value, "@") {
			continue
		}
		if !strings.Contains(value, "://") {
			value = "http://" + value // as net/http reads it
		}
		r.Add(value)
	}
}
