package secret_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/internal/secret"
)

func TestReferencesRoundTrip(t *testing.T) {
	for _, text := range []string{"${env:HOME}", "${env:_a9}", "${file:./token}", "${file:/a b/c:d}"} {
		ref, err := secret.ParseRef(text)
		if err != nil || ref.String() != text {
			t.Errorf("ParseRef(%q) = %v, %v", text, ref, err)
		}
	}
	for _, text := range []string{"", "x", "${env:}", "${env:A-B}", "${file:}", "${HOME}", "${env:A", "${vault:x}", "x${env:A}", "${env:A}x", "${env:A}${env:B}"} {
		if ref, err := secret.ParseRef(text); err == nil {
			t.Errorf("ParseRef(%q) = %v, want an error", text, ref)
		}
	}
}

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"token": "from file\n", "crlf": "x\r\n", "two": "a\nb\n\n", "empty": "\n", "big": strings.Repeat("x", 70_000)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	red := new(secret.Redactor)
	r := secret.Resolver{Redactor: red, LookupEnv: func(name string) (string, bool) {
		v, ok := map[string]string{"A": "from env", "EMPTY": ""}[name]
		return v, ok
	}}
	for ref, want := range map[secret.Ref]string{
		{Kind: "env", Name: "A"}:                         "from env",
		{Kind: "file", Name: "token"}:                    "from file",
		{Kind: "file", Name: filepath.Join(dir, "crlf")}: "x",
		{Kind: "file", Name: "./two"}:                    "a\nb\n",
		{Kind: "env", Name: "B"}:                         "error: ${env:B}: the variable B is not set",
		{Kind: "env", Name: "EMPTY"}:                     "error: ${env:EMPTY}: the variable EMPTY is empty",
		{Kind: "file", Name: "empty"}:                    "error: ${file:empty}: the file is empty",
		{Kind: "file", Name: "."}:                        "error: ${file:.}: not a regular file",
		{Kind: "file", Name: "big"}:                      "error: ${file:big}: larger than 65536 bytes",
	} {
		s, err := r.Resolve(ref, dir)
		got := s.Reveal()
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != want {
			t.Errorf("Resolve(%v) = %q, want %q", ref, got, want)
		}
	}
	if _, err := r.Resolve(secret.Ref{Kind: "file", Name: "none"}, dir); !os.IsNotExist(underlying(err)) {
		t.Errorf("a file that is not there: %v", err)
	}
	if got := red.String("got from env and from file"); got != "got *** and ***" {
		t.Errorf("the redactor has not learned what was resolved: %q", got)
	}
}

func underlying(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return err
		}
		err = u.Unwrap()
	}
}
