package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

const usage = `usage:
  release licenses FOLDER          print the licences of the command in FOLDER
  release pack FILE FOLDER SECONDS pack FOLDER into FILE, .tar.gz or .zip, as of that Unix time
  release sums FOLDER              print the SHA-256 of each file in FOLDER`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	switch {
	case len(args) == 2 && args[0] == "licenses":
		text, err := licenses(args[1])
		if err == nil {
			_, err = io.WriteString(out, text)
		}
		return err
	case len(args) == 4 && args[0] == "pack":
		seconds, err := strconv.ParseInt(args[3], 10, 64)
		if err != nil {
			return fmt.Errorf("pack: %w", err)
		}
		return pack(args[1], args[2], time.Unix(seconds, 0).UTC())
	case len(args) == 2 && args[0] == "sums":
		return sums(args[1], out)
	}
	return errors.New(usage)
}
