package jetstream

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/engine/journal"
)

// has reports whether there is a finding of that severity that contains the text.
func has(found []journal.Finding, severity, text string) bool {
	for _, f := range found {
		if f.Severity == severity && strings.Contains(f.What, text) && f.Why != "" && f.Do != "" {
			return true
		}
	}
	return false
}

func check(t *testing.T, log *Log) []journal.Finding {
	t.Helper()
	found, err := log.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestACheckOfAGoodClusterFindsNothing(t *testing.T) {
	t.Parallel()
	nodes := natstest.Shared(t)
	log := openTest(t, Config{
		URL: nodes.URL(), Shards: 4, SecondPlace: t.TempDir(),
		SystemUser: natstest.SystemUser, SystemPassword: natstest.SystemPassword,
	})
	natstest.Wait(t, func(ctx context.Context) error { // replicas of new streams catch up
		found, err := log.Check(ctx)
		if err == nil && len(found) > 0 {
			err = &foundError{found}
		}
		return err
	})
}

type foundError struct{ found []journal.Finding }

func (e *foundError) Error() string {
	var b strings.Builder
	for _, f := range e.found {
		b.WriteString(f.Severity + ": " + f.What + "; ")
	}
	return b.String()
}

func TestWithoutTheSystemAccountItCantBeShownThatServersSync(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	log := openTest(t, Config{URL: nodes.URL()})
	found := check(t, log)
	if !has(found, journal.Weak, "can't be shown that the servers sync") || !has(found, journal.Weak, "no second place") {
		t.Errorf("Check() = %v", &foundError{found})
	}
	log = openTest(t, Config{URL: nodes.URL(), SystemUser: "system", SystemPassword: "wrong-one"})
	found = check(t, log)
	if !has(found, journal.Weak, "do not report their configuration") || strings.Contains((&foundError{found}).Error(), "wrong-one") {
		t.Errorf("Check() = %v", &foundError{found})
	}
}

func TestAChangedStreamIsFound(t *testing.T) {
	t.Parallel()
	nodes := natstest.Shared(t)
	js := admin(t, nodes)
	log := openTest(t, Config{URL: nodes.URL(), Shards: 2, LeaseTime: 2 * time.Second})
	info, err := stream{log.backend.c, log.backend.names.logStream(1)}.info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	info.Config.MaxAge = time.Hour
	info.Config.Duplicates = time.Second
	info.Config.AllowDirect = false
	info.Config.Replicas = 1
	if _, err := js.UpdateStream(t.Context(), info.Config); err != nil {
		t.Fatal(err)
	}
	found := check(t, log)
	for _, want := range [][2]string{
		{journal.Broken, "messages are removed after 1h"}, {journal.Broken, "direct access is not allowed"},
		{journal.Weak, "remembered for 1s"}, {journal.Weak, "1 of 3 replicas"}, {journal.Weak, "lease time is 2s"},
	} {
		if !has(found, want[0], want[1]) {
			t.Errorf("Check() = %v; want %q", &foundError{found}, want)
		}
	}
	if found[0].Severity != journal.Broken {
		t.Errorf("the first finding is %+v; want the worst first", found[0])
	}
	if err := js.DeleteStream(t.Context(), log.backend.names.logStream(0)); err != nil {
		t.Fatal(err)
	}
	if found := check(t, log); !has(found, journal.Broken, "was deleted") {
		t.Errorf("Check() = %v; want that a stream was deleted", &foundError{found})
	}
}

func TestOneNodeThatSyncsLazilyIsFound(t *testing.T) {
	t.Parallel()
	nodes := natstest.Start(t, 1, natstest.WithSync("1m"))
	log := openTest(t, Config{
		URL: nodes.URL(), Shards: 3, SystemUser: natstest.SystemUser, SystemPassword: natstest.SystemPassword,
	})
	found := check(t, log)
	if !has(found, journal.Weak, "syncs to disk every 1m") || !has(found, journal.Weak, "all streams: 1 of 3 replicas") {
		t.Errorf("Check() = %v", &foundError{found})
	}
}

func TestAClockThatIsWrongIsFound(t *testing.T) {
	t.Parallel()
	now := time.Now()
	tests := []struct {
		name  string
		shown time.Duration
		want  time.Duration
	}{
		{"within", 500, 0}, {"at the start", 0, 0}, {"ahead", 1800, 800}, {"behind", -700, -700},
	}
	for _, test := range tests {
		got := skew(now.Add(test.shown*time.Millisecond), now, now.Add(time.Second))
		if got != test.want*time.Millisecond {
			t.Errorf("%s: skew = %v; want %v", test.name, got, test.want*time.Millisecond)
		}
	}
	f := &findings{redact: Config{}.redact}
	f.addSkew("member a", 499*time.Millisecond)
	f.addSkew("member b", -501*time.Millisecond)
	if len(f.list) != 1 || !has(f.list, journal.Weak, "clock of member b is -501ms off") {
		t.Errorf("found %+v; want the clock of b", f.list)
	}
}

func TestVersionsThatAreOldAreFound(t *testing.T) {
	t.Parallel()
	tests := []struct{ version, want string }{
		{"2.15.2", ""}, {"2.16.0", ""}, {"2.12.1", journal.Weak}, {"2.11.9", journal.Weak}, {"2.12.3", journal.Note}, {"2.14.0-RC.1", journal.Note}, {"dev", journal.Note},
	}
	for _, test := range tests {
		f := &findings{redact: Config{}.redact}
		f.checkVersion("n0", test.version)
		got := ""
		if len(f.list) > 0 {
			got = f.list[0].Severity
		}
		if got != test.want {
			t.Errorf("version %s is %q; want %q", test.version, got, test.want)
		}
	}
}

func TestACheckFromOutsideJoinsAndCreatesNothing(t *testing.T) {
	t.Parallel()
	nodes := natstest.SharedNode(t)
	cfg := Config{URL: nodes.URL(), Name: newName(), Shards: 2, SystemUser: natstest.SystemUser, SystemPassword: natstest.SystemPassword}
	found, err := Check(t.Context(), cfg)
	if err != nil || !has(found, journal.Note, "there is no cluster "+cfg.Name) || has(found, journal.Broken, "") {
		t.Errorf("Check() of what is not there = %v, %v", &foundError{found}, err)
	}
	i := slices.IndexFunc(found, func(f journal.Finding) bool { return strings.HasPrefix(f.What, "there is no cluster") })
	if i < 0 || !strings.Contains(found[i].Why, "only the servers were checked: ") || !strings.Contains(found[i].Do, "`tideover move`") {
		t.Errorf("Check() of what is not there = %+v; want that the servers were checked", found)
	}
	if _, err := admin(t, nodes).Stream(t.Context(), names(cfg.Name).bucketStream()); err == nil {
		t.Fatal("a bucket was created")
	}
	log := openTest(t, cfg)
	found, err = Check(t.Context(), cfg)
	if err != nil || !has(found, journal.Weak, "no second place") || has(found, journal.Note, "") {
		t.Errorf("Check() = %v, %v", &foundError{found}, err)
	}
	if status, err := log.Status(t.Context()); err != nil || len(status.Members) != 1 {
		t.Errorf("Status() = %+v, %v; want one member", status, err)
	}
	cfg.User, cfg.Password = "stranger", "pa55w0rd"
	_, err = Check(t.Context(), cfg)
	wantErr(t, "Check with wrong credentials", err, nil, "check the credentials")
}
