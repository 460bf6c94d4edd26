package main

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

const usage = `usage:
  release licenses FOLDER           print the licences of the command in FOLDER
  release pack FILE FOLDER SECONDS  pack FOLDER into FILE as of that Unix time: an archive, a package or
                                    an image, as the name says, such as tideover_0.1.0_linux_amd64.deb
  release unpack FILE FOLDER        write the files of an archive, a package or an image into FOLDER
  release sbom SECONDS FOLDER       print the SBOM of the binaries in FOLDER/*, which become archives
  release formula FILE DIST VERSION print the formula for the archives in DIST, from a template
  release certificates FILE         print certificates, one DER after the other, as PEM
  release sums DIST                 print the SHA-256 of each file in DIST
  release verify DIST               read the files in DIST back: checksums, lists of files, executables`

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// verbs are what the command does, by the name and the number of arguments.
var verbs = map[string]func(args []string, out io.Writer) error{
	"licenses 1": func(args []string, out io.Writer) error {
		text, err := licenses(args[0])
		return printText(out, []byte(text), err)
	},
	"pack 3": func(args []string, _ io.Writer) error {
		at, err := parseTime(args[2])
		if err != nil {
			return err
		}
		return pack(args[0], args[1], at)
	},
	"unpack 2": func(args []string, _ io.Writer) error { return unpack(args[0], args[1]) },
	"sbom 2": func(args []string, out io.Writer) error {
		at, err := parseTime(args[0])
		if err != nil {
			return err
		}
		folders, err := filepath.Glob(filepath.Join(args[1], "*"))
		if err != nil {
			return err
		}
		text, err := sbom(folders, at)
		return printText(out, text, err)
	},
	"formula 3": func(args []string, out io.Writer) error {
		text, err := formula(args[0], args[1], args[2])
		return printText(out, text, err)
	},
	"certificates 1": func(args []string, out io.Writer) error {
		text, err := certificates(args[0])
		return printText(out, text, err)
	},
	"sums 1":   func(args []string, out io.Writer) error { return sums(args[0], out) },
	"verify 1": func(args []string, out io.Writer) error { return verify(args[0], out) },
}

func run(args []string, out io.Writer) error {
	if len(args) > 0 {
		if do := verbs[fmt.Sprint(args[0], " ", len(args)-1)]; do != nil {
			return do(args[1:], out)
		}
	}
	return errors.New(usage)
}

// printText prints the text unless there is an error.
func printText(out io.Writer, text []byte, err error) error {
	if err == nil {
		_, err = out.Write(text)
	}
	return err
}

func parseTime(seconds string) (time.Time, error) {
	n, err := strconv.ParseInt(seconds, 10, 64)
	return time.Unix(n, 0).UTC(), err
}

// certificates returns as PEM what a file has as DER.
func certificates(file string) (text []byte, err error) {
	der, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	list, err := x509.ParseCertificates(der)
	for _, c := range list {
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return text, err
}
