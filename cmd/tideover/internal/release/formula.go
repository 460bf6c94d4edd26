package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

// formula fills in a template of a Homebrew formula, which may call archive "darwin" "arm64" for the
// URL and the checksum of an archive in the folder.
func formula(file, dist, version string) ([]byte, error) {
	t, err := template.New(filepath.Base(file)).Funcs(template.FuncMap{"archive": func(system, arch string) (string, error) {
		r := release{version: version, system: system, arch: arch}
		name := filepath.Base(r.folderOf()) + ".tar.gz"
		data, err := os.ReadFile(filepath.Join(dist, name))
		return fmt.Sprintf("url \"%s/releases/download/v%s/%s\"\n      sha256 \"%s\"", homepage, version, name, digest(data)), err
	}}).ParseFiles(file)
	if err != nil {
		return nil, fmt.Errorf("formula: %w", err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, version); err != nil {
		return nil, fmt.Errorf("formula: %w", err)
	}
	return out.Bytes(), nil
}
