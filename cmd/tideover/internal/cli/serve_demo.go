package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/demo"
)

// demonstrate has the demo's own file in the folder be the configuration: the demo
// needs nothing of yours, and shows nothing of it.
func demonstrate(src *config.Source, dir string) (err error) {
	if src.Flags["engine.nats"] != "" {
		return errors.New("serve: the demo keeps its runs in a folder: leave out --demo, or --nats")
	}
	if src.Path, err = demo.Write(dir); err != nil {
		return err
	}
	if src.Flags["data"] == "" {
		src.Flags["data"] = filepath.Join(dir, "data")
	}
	// A cluster and a certificate that variables name are not about the demo.
	src.Environ = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "TIDEOVER_ENGINE_") || strings.HasPrefix(v, "TIDEOVER_SERVER_TLS_")
	})
	return nil
}
