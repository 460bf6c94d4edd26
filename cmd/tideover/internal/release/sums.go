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
		sum, err := sumOf(filepath.Join(folder, e.Name()))
		if err != nil {
			return fmt.Errorf("sums: %w", err)
		}
		if _, err := fmt.Fprintf(out, "%x  %s\n", sum, e.Name()); err != nil {
			return fmt.Errorf("sums: %w", err)
		}
	}
	return nil
}

func sumOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}
