package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// sums prints the SHA-256 of each file in a folder, sorted by name, in the format of sha256sum and
// shasum.
func sums(folder string, out io.Writer) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("sums: %w", err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err == nil {
			_, err = fmt.Fprintf(out, "%x  %s\n", sha256.Sum256(data), e.Name())
		}
		if err != nil {
			return fmt.Errorf("sums: %w", err)
		}
	}
	return nil
}
