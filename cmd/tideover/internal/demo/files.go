package demo

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// files has the configuration of the demo, and the scripts that it runs.
//
//go:embed files
var files embed.FS

// Write writes the configuration of the demo and its scripts into the folder, and returns the path
// of the configuration. On Windows it leaves out the scripts and everything that runs them.
func Write(dir string) (path string, err error) {
	config, err := files.ReadFile("files/base.yaml")
	if err != nil {
		return "", err
	}
	if runtime.GOOS != "windows" {
		more, err := commands(dir)
		if err != nil {
			return "", err
		}
		config = append(config, more...)
	}
	path = filepath.Join(dir, "tideover.yaml")
	return path, os.WriteFile(path, config, 0o600)
}

// commands writes the scripts, and returns the part of the configuration that runs them.
func commands(dir string) ([]byte, error) {
	for _, name := range []string{"assistant.sh", "bell.sh", "buoy.sh"} {
		script, err := files.ReadFile("files/" + name)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), script, 0o600); err != nil {
			return nil, fmt.Errorf("demo: %w", err)
		}
	}
	return files.ReadFile("files/commands.yaml")
}
