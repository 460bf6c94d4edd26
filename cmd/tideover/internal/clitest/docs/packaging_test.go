//go:build unix

package docs_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/tideover/tideover/internal/testfile"
	"github.com/tideover/tideover/internal/testwait"

	"github.com/tideover/tideover/cmd/tideover/internal/clitest"

	"github.com/tideover/tideover/cmd/tideover/internal/cli"
)

// packaging returns the text of a file in the folder packaging.
func packaging(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(testfile.Repository(t, "packaging", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// container runs the commands of a Dockerfile on this machine, with the variables of the image, and
// with folders of the test instead of those of the image.
type container struct {
	t     *testing.T
	text  string
	place *strings.Replacer
	env   []string
}

func newContainer(t *testing.T, dockerfile, config string) *container {
	t.Helper()
	dir := testfile.ShortDir(t)
	c := &container{t: t, text: dockerfile, place: strings.NewReplacer("/etc/tideover", dir+"/etc", "/data", dir+"/data")}
	for _, name := range []string{"etc", "data"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "etc", "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for variable := range strings.FieldsSeq(c.last("ENV")) {
		c.env = append(c.env, c.place.Replace(variable))
	}
	return c
}

// last returns the arguments of the last line of the Dockerfile with this instruction.
func (c *container) last(instruction string) string {
	c.t.Helper()
	all := regexp.MustCompile(`(?m)^`+instruction+` (.*)$`).FindAllStringSubmatch(c.text, -1)
	if all == nil {
		c.t.Fatalf("no %s in the Dockerfile", instruction)
	}
	return all[len(all)-1][1]
}

// argv returns the command of an instruction, which is written as a JSON array.
func (c *container) argv(instruction string) (argv []string) {
	c.t.Helper()
	line := c.last(instruction)
	if err := json.Unmarshal([]byte(line[strings.Index(line, "["):]), &argv); err != nil {
		c.t.Fatalf("%s %s: %v", instruction, line, err)
	}
	return argv
}

func (c *container) command(args ...string) *exec.Cmd {
	cmd, _ := clitest.Command(c.t, args...)
	cmd.Env = append(append(cmd.Env, "TIDEOVER_TOKEN="+clitest.TestToken, "TIDEOVER_SERVER=", "TIDEOVER_SERVER_LISTEN=127.0.0.1:0"), c.env...)
	return cmd
}

func TestContainersServeAndAreHealthy(t *testing.T) {
	t.Parallel()
	files, config := clitest.Blocks(t, "install.md", "dockerfile"), clitest.Blocks(t, "install.md", "yaml")
	if len(files) != 1 || len(config) != 1 {
		t.Fatalf("docs/install.md has %d Dockerfiles and %d configurations", len(files), len(config))
	}
	for name, text := range map[string]string{"packaging/Dockerfile": packaging(t, "Dockerfile"), "docs/install.md": files[0]} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newContainer(t, text, config[0])
			health := c.argv("HEALTHCHECK")
			if entry := c.argv("ENTRYPOINT"); len(entry) != 1 || entry[0] != health[0] {
				t.Errorf("entry point %q, health %q", entry, health)
			}
			clitest.WantCode(t, clitest.Finish(t, c.command(health[1:]...)), cli.CodeOwn)

			out := new(clitest.SyncBuffer)
			serve := &clitest.Background{T: t, Cmd: c.command(c.argv("CMD")...)}
			serve.Stdout, serve.Stderr = out, out
			serve.Begin()
			testwait.Until(t, "the container is healthy", func() bool { return clitest.Finish(t, c.command(health[1:]...)).Code == 0 })
			serve.Signal(syscall.SIGTERM)
			if got := serve.End(); got.Code != 0 {
				t.Errorf("serve ended with %d: %s", got.Code, out.String())
			}
		})
	}
}

// The unit has the same command as the Dockerfile. If systemd is installed, it checks the unit.
func TestTheSystemUnitIsGood(t *testing.T) {
	t.Parallel()
	unit := packaging(t, "tideover.service")
	dockerfile := &container{t: t, text: packaging(t, "Dockerfile")}
	for _, part := range []string{
		"\nExecStart=/usr/local/bin/tideover " + strings.Join(dockerfile.argv("CMD"), " ") + "\n",
		"\nEnvironment=TIDEOVER_CONFIG=/etc/tideover/config.yaml\n", "\nEnvironment=TIDEOVER_SERVER_DATA=%S/tideover\n",
	} {
		clitest.WantIn(t, "the unit", unit, part)
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("systemd-analyze is not installed; the unit was only read")
		return
	}
	// The binary and its manual are not installed here: replace their paths.
	unit = strings.Replace(unit, "/usr/local/bin/tideover", clitest.CommandPath(t), 1)
	unit = regexp.MustCompile(`(?m)^Documentation=.*\n`).ReplaceAllString(unit, "")
	file := filepath.Join(t.TempDir(), "tideover.service")
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), analyze, "verify", file).CombinedOutput(); err != nil || strings.Contains(string(out), "tideover.service:") {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}
