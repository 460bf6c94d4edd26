package starter_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/certtest"
	"github.com/tideover/tideover/cmd/tideover/internal/config"
	"github.com/tideover/tideover/cmd/tideover/internal/starter"
)

// aKey is a secret key for tests only.
const aKey = "67dea2ed018072d675f5415ecfaed7d2597555e202d85b3d65ea4e58d2d92ffa"

// folder returns a folder with the key file that the case nip90 needs, and with a certificate.
func folder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "provider.nsec"), []byte(aKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	certtest.New(t).Issue(t, time.Now().Add(time.Hour), "localhost").Write(t, dir)
	return dir
}

func load(dir string, text []byte, environ ...string) (*config.Config, error) {
	return config.Load(config.Source{Path: filepath.Join(dir, starter.Name), Data: text, Environ: append(environ, "HOME=/home/me")})
}

func TestEveryFileLoadsWithNoVariableSet(t *testing.T) {
	t.Parallel()
	for _, c := range starter.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			text, err := c.File()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := load(folder(t), text); err != nil {
				t.Errorf("%s.yaml: %v", c.Name, err)
			}
			_, err = load(t.TempDir(), text)
			if needs := c.Name == "nip90"; (err != nil) != needs {
				t.Errorf("%s.yaml without a key beside it: %v; want an error only of nip90", c.Name, err)
			}
		})
	}
}

// off matches a setting that is commented out: a # that is not followed by a space.
var off = regexp.MustCompile(`(?m)^( *)#([^ \n])`)

// offMore matches the further lines of a setting that is commented out: they are indented after the
// #.
var offMore = regexp.MustCompile(`(?m)^( *)#( {2,}\S)`)

func switchedOn(text []byte) []byte {
	return offMore.ReplaceAll(off.ReplaceAll(text, []byte("$1$2")), []byte("$1$2"))
}

func TestEverySettingThatIsSwitchedOffIsGood(t *testing.T) {
	t.Parallel()
	for _, c := range starter.Cases() {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			text, err := c.File()
			if err != nil {
				t.Fatal(err)
			}
			dir, all := folder(t), switchedOn(text)
			all = []byte(strings.ReplaceAll(string(all), "/mnt/backup/tideover", t.TempDir()))
			var environ []string
			for _, m := range regexp.MustCompile(`\$\{env:(\w+)\}`).FindAllSubmatch(all, -1) {
				environ = append(environ, string(m[1])+"=https://ntfy.example.com/topic")
			}
			before, err := load(dir, text)
			if err != nil {
				t.Fatal(err)
			}
			after, err := load(dir, all, environ...)
			if err != nil {
				t.Fatalf("%v\nin\n%s", err, all)
			}
			if len(after.Values()) <= len(before.Values()) {
				t.Errorf("%d values with everything on, %d without", len(after.Values()), len(before.Values()))
			}
		})
	}
}

func TestTheFilesSayWhatTheyNeed(t *testing.T) {
	t.Parallel()
	for _, c := range starter.Cases() {
		text, err := c.File()
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(text), "version: 1")
		want := "variable"
		if c.Name == "nip90" {
			want = "key"
		}
		if !strings.Contains(head, want) {
			t.Errorf("the head of %s.yaml does not say whether a %s is needed:\n%s", c.Name, want, head)
		}
		if n := len(c.Next(starter.Name)); n != 2 {
			t.Errorf("%s: %d commands to run next, want 2", c.Name, n)
		}
	}
}

func ExampleCase_Next() {
	c, _ := starter.Find("cluster")
	fmt.Println(c.Next("tideover.yaml"))
	fmt.Println(c.Next("/etc/tideover/config.yaml"))
	// Output:
	// [[tideover doctor] [tideover serve]]
	// [[tideover doctor --config /etc/tideover/config.yaml] [tideover serve --config /etc/tideover/config.yaml]]
}
