//go:build unix

package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tideover/tideover/cmd/tideover/internal/control"
	"github.com/tideover/tideover/cmd/tideover/internal/doctor"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
)

// examined runs the doctor with the configuration text, and returns its findings by severity.
func examined(t *testing.T, text string, env ...string) (o outcome, found map[string]string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tideover.yaml")
	write(t, file, text)
	cmd, _ := command(t, "doctor", "--json", "--config", file)
	cmd.Env = append(cmd.Env, env...)
	o = finish(t, cmd)
	var d control.Diagnosis
	if err := json.Unmarshal([]byte(o.out), &d); err != nil {
		t.Fatalf("doctor: %v in %+v", err, o)
	}
	found = map[string]string{}
	for _, f := range d.Findings {
		if f.What == "" || f.Why == "" || f.Do == "" {
			t.Errorf("a finding that says too little: %+v", f)
		}
		found[f.Severity] += f.What + "\n"
	}
	return o, found
}

func TestTheDoctorLooksAtAFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir() // there may be further findings about its file system
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	o, found := examined(t, fmt.Sprintf("version: 1\nserver: {data: %s, durability: os}\n", dir))
	wantCode(t, o, 1)
	wantIn(t, "what is weak", found["weak"], "server.durability is os")
	wantIn(t, "what is weak", found["weak"], "is accessible to other users")
	if left, _ := filepath.Glob(filepath.Join(dir, ".doctor*")); len(left) > 0 {
		t.Errorf("it left %v", left)
	}
	o = tideover(t, "doctor", "--config", filepath.Join(dir, "none.yaml"))
	wantCode(t, o, 125)
}

// If $TIDEOVER_SERVER names a server, that server runs the checks, because checks of this machine
// would not apply to it.
func TestTheDoctorAsksTheServer(t *testing.T) {
	t.Parallel()
	s := serveFile(t, "version: 1\nserver: {durability: os}\n", "")
	o := s.runCommand("doctor")
	wantCode(t, o, 1)
	wantIn(t, "doctor", o.out, "runs are stored in the folder "+s.data+" (checked by the server at ")
	wantIn(t, "doctor", o.out, "weak    server.durability is os")
	other := filepath.Join(t.TempDir(), "other.yaml")
	write(t, other, "version: 1\nserver: {data: "+t.TempDir()+"}\n")
	if o := s.runCommand("doctor", "--config", other); strings.Contains(o.out, "server.durability") {
		t.Errorf("a file that is named is not what was looked at: %s", o.out)
	}
	wantIn(t, "doctor --server --json", tideover(t, "doctor", "--server", "unix:"+filepath.Join(s.data, "tideover.sock"), "--json").out, `"server.durability is os"`)
	wantCode(t, tideover(t, "doctor", "--server", "unix:"+s.data+"/none.sock"), codeOwn)
	both := tideover(t, "doctor", "--server", "unix:"+filepath.Join(s.data, "tideover.sock"), "--data", t.TempDir())
	wantCode(t, both, codeOwn)
	wantIn(t, "doctor --server --data", both.stderr, "leave out one of them")
}

func TestTheDoctorSaysThatThereIsNothingToLookAt(t *testing.T) {
	t.Parallel()
	cmd, _ := command(t, "doctor")
	cmd.Dir = shortDir(t)
	cmd.Env = append(cmd.Env, "HOME="+cmd.Dir, "XDG_STATE_HOME=", "XDG_CONFIG_HOME=", "TIDEOVER_SERVER=", "TIDEOVER_CONFIG=")
	o := finish(t, cmd)
	wantCode(t, o, 0)
	wantIn(t, "doctor", o.out, "no configuration file was found: the defaults were checked")
	wantIn(t, "doctor", o.out, "does not exist yet")
}

func TestTheDoctorLooksAtACluster(t *testing.T) {
	t.Parallel()
	nodes := natstest.Shared(t)
	name := clusterName(t)
	second := t.TempDir()
	good := engineSection(nodes, name, "second-place: "+second, "system-user: system", "system-password: '${env:SYSTEM}'")
	f := newClusterServers(t, shared+good)
	system := "SYSTEM=" + natstest.SystemPassword
	if o, found := examined(t, f.text, system); found["broken"]+found["weak"] != "" || found["note"] == "" {
		t.Errorf("one that does not exist yet has %v; %+v", found, o)
	}
	a := f.serve("a", system)
	a.waitForShards(1)
	var o outcome
	var found map[string]string
	defer func() {
		if t.Failed() {
			t.Logf("the last examination found %v; %+v", found, o)
		}
	}()
	testwait.Until(t, "nothing weakens a good cluster", func() bool { // a server may be behind for a moment
		o, found = examined(t, f.text, system)
		return found["broken"]+found["weak"] == ""
	})
	wantCode(t, o, 0)
	if c := a.clusterState(); len(c.Members) != 1 || c.Shards[0].Epoch != 1 {
		t.Errorf("the doctor has changed something: %+v", c)
	}
	o, found = examined(t, "version: 1\n"+engineSection(nodes, name))
	wantCode(t, o, 1)
	wantIn(t, "what is weak", found["weak"], "second place")
	wantIn(t, "what is weak", found["weak"], "can't be shown that the servers sync")

	// A server reports what it has found itself.
	f.text = shared + engineSection(nodes, name)
	b := f.serve("b")
	testwait.Until(t, "the server reports that the cluster is weak", func() bool {
		o = b.runCommand("doctor")
		return o.code == 1 && strings.Contains(o.out, "second place") && strings.Contains(o.out, "can't be shown that the servers sync")
	})
}

func TestADiagnosisForPeople(t *testing.T) {
	t.Parallel()
	s := &screen{}
	weak := control.Diagnosis{Engine: "the folder /d", Findings: []doctor.Finding{{Severity: "weak", What: "it leaks\x1b[1m", Why: "of a hole", Do: "mend it"}}}
	if got, want := strings.Join(renderDiagnosis(weak, s), "\n"), "runs are stored in the folder /d\n\nweak    it leaks\\x1b[1m\n        why  of a hole\n        do   mend it\n\n0 broken, 1 weak"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	note := control.Diagnosis{Findings: []doctor.Finding{{Severity: "note"}}}
	if lines := renderDiagnosis(note, s); lines[len(lines)-1] != "no problems found" {
		t.Errorf("a note: %q", lines)
	}
}
