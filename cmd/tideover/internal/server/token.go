package server

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/fileaccess"
	"github.com/tideover/tideover/internal/secret"
)

// loadToken returns the token of the configuration, or the one in the data folder. It creates that
// one if the file does not exist.
func loadToken(cfg *config.Config) (secret.String, error) {
	if t := cfg.Server.Token; t != nil {
		token, err := t.Resolve(cfg.Secrets())
		if err != nil {
			return token, fmt.Errorf("server.token: %w", err)
		}
		return token, nil
	}
	path := filepath.Join(cfg.Server.Data, "token")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		data = []byte(rand.Text())
		err = writeToken(path, data)
	}
	if err != nil {
		return secret.String{}, fmt.Errorf("token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if len(token) < config.MinToken {
		return secret.String{}, fmt.Errorf("token: %s has %d characters, at least %d are needed; delete it and a new one is made", path, len(token), config.MinToken)
	}
	info, err := os.Stat(path)
	if err == nil {
		err = fileaccess.Check(path, info, fileaccess.GroupOrOthers)
	}
	if err != nil {
		return secret.String{}, fmt.Errorf("token: %w, or delete it and a new one is made", err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm()&0o077 != 0 {
		return secret.String{}, fmt.Errorf("token: others may read %s (%v): chmod 600 it, or delete it and a new one is made", path, info.Mode().Perm())
	}
	return secret.New(token), nil
}

// writeToken creates the file with access for its owner only, from the start.
func writeToken(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	return errors.Join(err, f.Sync(), f.Close())
}
