package account

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tideover/tideover/internal/testwait"
)

// proberVar is the variable that makes a process of the test binary take a pass and keep it.
const proberVar = "TIDEOVER_TEST_PROBER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(proberVar); dir != "" {
		g, err := (&Store{Dir: dir}).Gate("x")
		if err != nil {
			panic(err)
		}
		pass, held := g.Enter(Asker{ID: "other", Name: "session other", Spread: time.Second})
		fmt.Println(pass != nil && pass.Probes(), held)
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// clocks simulates the uptime clock of a machine.
type clocks struct {
	boot string
	up   time.Duration
}

// store returns a store of a process on the machine.
func (c *clocks) store(t *testing.T, dir string) (s *Store, said *[]string) {
	t.Helper()
	said = new([]string)
	return &Store{
		Dir: dir, Warn: func(text string) { *said = append(*said, text) },
		Uptime: func() (time.Duration, string) { return c.up, c.boot },
	}, said
}

func gate(t *testing.T, dir string) (*Gate, *[]string) {
	t.Helper()
	s, said := (&clocks{}).store(t, dir)
	g, err := s.Gate("x")
	if err != nil {
		t.Fatal(err)
	}
	return g, said
}

func asker(id string) Asker {
	return Asker{ID: id, Name: "session " + id, Slack: 90 * time.Second, Longest: 8 * 24 * time.Hour, Spread: 30 * time.Second}
}

// enter returns a pass of the asker, and fails the test if the gate holds it back.
func enter(t *testing.T, g *Gate, id string) *Pass {
	t.Helper()
	p, held := g.Enter(asker(id))
	if held != nil {
		t.Fatalf("%s is held: %+v", id, held)
	}
	return p
}

// wantHeld checks that the asker must wait for about this long.
func wantHeld(t *testing.T, g *Gate, id string, want time.Duration) {
	t.Helper()
	p, held := g.Enter(asker(id))
	if held == nil {
		t.Errorf("%s has a pass, probes %v; want it to wait for %v", id, p.Probes(), want)
		p.Leave()
		return
	}
	if late := held.Wait - want; late < 0 || late > 31*time.Second {
		t.Errorf("%s waits for %v, want %v to 30s more: %s", id, held.Wait, want, held.Why)
	}
}

func TestAStatedResetHoldsTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		here, _ := gate(t, dir)
		there, _ := gate(t, dir)
		p := enter(t, here, "a")
		late := enter(t, there, "late")
		if held := p.Limited(Reset{In: time.Hour}, "come back later", time.Minute); held != nil {
			t.Errorf("who says so is held: %+v", held)
		}
		p.Leave()
		wantHeld(t, there, "b", time.Hour+90*time.Second)
		// A pass that was given before the limit does not change the limit.
		held := late.Limited(Reset{}, "limited", time.Minute)
		if held == nil || held.Wait < time.Hour || !strings.Contains(held.Why, "reported by session a: come back later") {
			t.Errorf("held by %+v", held)
		}
		late.Worked() // its pass is from before the limit, so its success means nothing
		wantHeld(t, there, "b", time.Hour+90*time.Second)
		// A later end replaces an earlier one, but not the other way round.
		enter(t, here, "a").Limited(Reset{In: time.Minute}, "", 0)
		wantHeld(t, there, "b", time.Hour+90*time.Second)
		enter(t, here, "a").Limited(Reset{At: time.Now().Add(2 * time.Hour)}, "", 0)
		wantHeld(t, there, "b", 2*time.Hour+90*time.Second)
		time.Sleep(2*time.Hour + 90*time.Second)
		for _, id := range []string{"b", "c", "d"} { // all of them
			if p := enter(t, there, id); p.Probes() {
				t.Errorf("%s probes", id)
			}
		}
		if text := here.Describe(); text != "" {
			t.Errorf("described as %q", text)
		}
	})
}

func TestAFarResetIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := gate(t, t.TempDir())
		enter(t, g, "a").Limited(Reset{In: 20 * 24 * time.Hour}, "", 0)
		enter(t, g, "b").Leave() // its policy does not wait that long
		patient := asker("c")
		patient.Longest = 30 * 24 * time.Hour
		if _, held := g.Enter(patient); held == nil || held.Wait < 20*24*time.Hour {
			t.Errorf("held by %+v", held)
		}
		// An implausible end counts as unknown.
		g, _ = gate(t, t.TempDir())
		enter(t, g, "a").Limited(Reset{In: 1000 * 24 * time.Hour}, "", time.Minute)
		wantHeld(t, g, "b", time.Minute)
	})
}

// Many askers of several processes ask at once.
func TestOneProbesAtATime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		g, _ := gate(t, dir)
		p := enter(t, g, "a")
		p.Limited(Reset{}, "limited", time.Minute)
		p.Leave()
		wantHeld(t, g, "b", time.Minute)
		time.Sleep(2 * time.Minute)
		for range 3 {
			var mu sync.Mutex
			var passes []*Pass
			var all sync.WaitGroup
			for i := range 8 {
				other, _ := gate(t, dir)
				all.Go(func() {
					if p, _ := other.Enter(asker(fmt.Sprint("racer", i))); p != nil {
						mu.Lock()
						passes = append(passes, p)
						mu.Unlock()
					}
				})
			}
			all.Wait()
			if len(passes) != 1 || !passes[0].Probes() {
				t.Fatalf("%d may go on", len(passes))
			}
			passes[0].Leave() // no result: another asker probes
		}
		p = enter(t, g, "a")
		wantHeld(t, g, "b", ProvenAfter-time.Second)
		p.Worked()
		for _, id := range []string{"b", "c"} {
			if p := enter(t, g, id); p.Probes() {
				t.Errorf("%s probes", id)
			}
		}
	})
}

// A stopped process that probes does not block the others for ever.
func TestAStoppedProbeExpires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g, _ := gate(t, t.TempDir())
		enter(t, g, "a").Limited(Reset{}, "limited", 0)
		stopped := enter(t, g, "b")
		time.Sleep(leaseTime - time.Second)
		wantHeld(t, g, "c", minWait)
		time.Sleep(2 * time.Second)
		p := enter(t, g, "c")
		if !p.Probes() {
			t.Error("c does not probe")
		}
		stopped.Leave() // another asker probes now
		if g.current().Probe == nil {
			t.Error("the probe of c was ended by b")
		}
		p.Leave()
	})
}

// A killed process that probes is replaced at once.
func TestAKilledProbeIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g, _ := gate(t, dir)
	enter(t, g, "a").Limited(Reset{}, "limited", 0)
	cmd := exec.CommandContext(testwait.Context(t), os.Args[0])
	cmd.Env = append(os.Environ(), proberVar+"="+dir)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line != "true <nil>\n" {
		t.Fatalf("the other process says %q", line)
	}
	if p, held := g.Enter(asker("b")); held == nil {
		t.Errorf("b has a pass, probes %v", p.Probes())
	}
	if g.Free(asker("b")) {
		t.Error("free, while another process probes")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !g.Free(asker("b")) {
		t.Error("not free, although the process is gone")
	}
	if p := enter(t, g, "b"); !p.Probes() {
		t.Error("b does not probe")
	}
}

// The clock is set, and the machine is restarted.
func TestAClockThatIsSet(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 7, 9, 12, 0, 0, 0, time.UTC)
	at := func(wall, up time.Duration, boot string) moment { return moment{now.Add(wall), up, boot} }
	const h = time.Hour
	for _, tt := range []struct {
		name     string
		calendar bool // the end was stated as a time of the calendar, in two hours
		then     moment
		want     time.Duration
	}{
		{"nothing happens", false, at(h, h, "b"), h},
		{"nothing happens, calendar", true, at(h, h, "b"), h},
		{"set forward", false, at(100*h, h, "b"), h},
		{"set forward, calendar", true, at(100*h, h, "b"), -98 * h},
		{"set back", false, at(-100*h, h, "b"), h},
		{"set back, calendar", true, at(-100*h, h, "b"), h},
		{"set back a little, calendar", true, at(0, h, "b"), h},
		{"another boot", false, at(h, 0, "c"), h},
		{"another boot, set back", false, at(-100*h, 0, "c"), 2 * h},
		{"another boot, set back, calendar", true, at(-100*h, 0, "c"), 2 * h},
		{"another boot, set forward", false, at(100*h, 0, "c"), -98 * h},
		{"an uptime that is less", false, at(h, -h, "b"), h},
	} {
		l := &limit{moment: at(0, 0, "b"), Wait: 2 * h}
		if tt.calendar {
			l.Until = now.Add(2 * h)
		}
		if got := l.left(tt.then); got != tt.want {
			t.Errorf("%s: %v are left, want %v", tt.name, got, tt.want)
		}
	}

	// A clock that was set back before a reboot counts from then on.
	s := &state{Limit: &limit{moment: at(0, 0, "b"), Wait: 2 * h, Until: now.Add(2 * h)}}
	if !s.rebase(at(-100*h, 0, "c")) || s.rebase(at(-100*h, 0, "c")) {
		t.Error("the moment is not moved once")
	}
	if left := s.Limit.left(at(-99*h, h, "c")); left != h {
		t.Errorf("%v are left, want 1h", left)
	}
}

func TestADamagedFileIsPutAside(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat(`{"limit":`, 20000)
	for name, text := range map[string]string{
		"empty": "", "no JSON": "\x00\x01\xff", "half": `{"version":1,"limit":{"at":"2026`, "another type": `[1,2,3]`, "null": "null",
		"no version": `{}`, "a version below": `{"version":-7}`, "deep": deep, "large": `{"version":1,"x":"` + strings.Repeat("x", maxFile) + `"}`,
		"a wait without end":  `{"version":1,"serial":5,"limit":{"at":"2026-07-09T12:00:00Z","serial":1,"wait_ns":9223372036854775807}}`,
		"a negative wait":     `{"version":1,"serial":5,"limit":{"at":"2026-07-09T12:00:00Z","serial":1,"wait_ns":-5}}`,
		"a number too large":  `{"version":1,"serial":5,"limit":{"at":"2026-07-09T12:00:00Z","serial":1,"wait_ns":1e400}}`,
		"a serial at the end": `{"version":1,"serial":9223372036854775807}`,
		"a serial ahead":      `{"version":1,"serial":5,"limit":{"at":"2026-07-09T12:00:00Z","serial":6,"wait_ns":5}}`,
		"a probe too late":    `{"version":1,"serial":5,"limit":{"at":"2026-07-09T12:00:00Z","serial":1,"next_probe_ns":9223372036854775807}}`,
		"a negative uptime":   `{"version":1,"serial":5,"probe":{"at":"2026-07-09T12:00:00Z","uptime_ns":-1}}`,
		"a year without end":  `{"version":1,"serial":5,"limit":{"at":"99999-07-09T12:00:00Z","serial":1}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				path := filepath.Join(dir, "x.json")
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				g, said := gate(t, dir)
				if g.Describe() != "" {
					t.Errorf("described as %q", g.Describe())
				}
				p := enter(t, g, "a")
				if p.Probes() || len(*said) != 1 || !strings.Contains((*said)[0], "account x") || !strings.Contains((*said)[0], "x.json.damaged") {
					t.Errorf("probes %v, said %q", p.Probes(), *said)
				}
				if was, err := os.ReadFile(path + ".damaged"); err != nil || string(was) != text {
					t.Errorf("put aside: %q, %v", was, err)
				}
				p.Limited(Reset{In: time.Hour}, "limited", 0)
				wantHeld(t, g, "b", time.Hour+90*time.Second)
			})
		})
	}
}

// Impossible times in the file do not extend the wait beyond the stated one.
func TestAHostileTimeIsBounded(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"in the future": `{"version":1,"serial":5,"limit":{"at":"9999-07-09T12:00:00Z","serial":1,"wait_ns":7200000000000,"until":"9999-07-09T14:00:00Z"}}`,
		"no calendar":   `{"version":1,"serial":5,"limit":{"at":"9999-07-09T12:00:00Z","serial":1,"wait_ns":7200000000000}}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				if err := os.WriteFile(filepath.Join(dir, "x.json"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				g, _ := gate(t, dir)
				wantHeld(t, g, "a", 2*time.Hour+90*time.Second)
				time.Sleep(time.Hour)
				wantHeld(t, g, "a", time.Hour+90*time.Second)
			})
		})
	}
	text := `{"version":1,"serial":5,"limit":{"at":"0001-01-01T00:00:00Z","serial":1,"by":"` + strings.Repeat("x", 50000) + `","next_probe_ns":5}}`
	s, err := parseState([]byte(text))
	if err != nil || len(s.Limit.By) > maxText+10 {
		t.Errorf("a text of %d bytes was kept, %v", len(s.Limit.By), err)
	}
}

func TestWhatIsNoFileOfOursIsPutAside(t *testing.T) {
	t.Parallel()
	good := `{"version":1,"serial":1,"limit":{"at":"2026-07-09T12:00:00Z","serial":1,"wait_ns":7200000000000}}`
	for name, plant := range map[string]func(path string) error{
		"a link":   func(path string) error { return os.Symlink("/dev/zero", path) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		"a link to a file that others may write": func(path string) error {
			if err := os.WriteFile(path+".elsewhere", []byte(good), 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".elsewhere", path)
		},
		"other users can write to it": func(path string) error {
			if err := os.WriteFile(path, []byte(good), 0o600); err != nil {
				return err
			}
			return os.Chmod(path, 0o666) //nolint:gosec // that is the point
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				if err := plant(filepath.Join(dir, "x.json")); err != nil {
					t.Fatal(err)
				}
				g, said := gate(t, dir)
				enter(t, g, "a").Limited(Reset{In: time.Hour}, "limited", 0)
				wantHeld(t, g, "b", time.Hour+90*time.Second)
				if len(*said) != 1 {
					t.Errorf("said %q", *said)
				}
				other, _ := gate(t, dir)
				wantHeld(t, other, "b", time.Hour+90*time.Second)
			})
		})
	}
}

// A file of a newer release is not changed.
func TestAFileOfANewerReleaseStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		const text = `{"version":2,"limits":[]}`
		path := filepath.Join(dir, "x.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		g, said := gate(t, dir)
		enter(t, g, "a").Limited(Reset{In: time.Hour}, "limited", 0)
		wantHeld(t, g, "b", time.Hour+90*time.Second)
		if was, err := os.ReadFile(path); err != nil || string(was) != text || len(*said) != 1 {
			t.Errorf("the file has %q, %v; said %q", was, err, *said)
		}
	})
}

func TestFilesAreForTheirOwner(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "accounts")
	g, _ := gate(t, dir)
	p := enter(t, g, "a")
	p.Limited(Reset{}, "limited", 0)
	enter(t, g, "a").Leave()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		info, err := e.Info()
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", e.Name(), info, err)
		}
		names = append(names, e.Name())
	}
	if !slices.Equal(names, []string{"x.json", "x.lock", "x.probe"}) {
		t.Errorf("the folder has %q", names)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info, err)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	s := &Store{Dir: t.TempDir()}
	for _, name := range []string{"", "none", "..", "../x", "a/b", "A", "a\x00b", strings.Repeat("a", 64)} {
		if _, err := s.Gate(name); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
	if err := CheckName("none"); err != nil {
		t.Error(err)
	}
	if err := CheckName("../x"); err == nil {
		t.Error("../x is a name")
	}
}

func FuzzParseState(f *testing.F) {
	f.Add([]byte(`{"version":1,"serial":5,"limit":{"at":"2026-07-09T12:00:00Z","serial":1,"wait_ns":5,"until":"2026-07-09T12:00:00Z"},"probe":{"at":"2026-07-09T12:00:00Z"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseState(text)
		if err != nil {
			return
		}
		now := moment{At: time.Date(2026, 7, 9, 12, 0, 0, 0, time.UTC)}
		s.rebase(now)
		if l := s.Limit; l != nil {
			a := asker("a")
			if h := l.heldFor("x", &a, s.probedBy("a", now), now); h != nil && (h.Wait <= 0 || h.Wait > maxStated+a.Slack+a.Spread) {
				t.Errorf("waits for %v", h.Wait)
			}
		}
		if _, err := json.Marshal(s); err != nil {
			t.Error(err)
		}
	})
}

// Files that other users may have written are not used.
func TestAFolderThatOthersMayWriteIsNotTrusted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "accounts")
		g, _ := gate(t, dir)
		enter(t, g, "a").Limited(Reset{In: time.Hour}, "limited", 0)
		if err := os.Chmod(dir, 0o770); err != nil { //nolint:gosec // that is the point
			t.Fatal(err)
		}
		other, said := gate(t, dir)
		if text := other.Describe(); text != "" {
			t.Errorf("described as %q", text)
		}
		enter(t, other, "b").Leave()
		enter(t, other, "c").Leave()
		if len(*said) != 1 || !strings.Contains((*said)[0], "other users can write to ") {
			t.Errorf("said %q", *said)
		}
	})
}
