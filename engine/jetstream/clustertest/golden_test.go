package clustertest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/jetstream"
	"github.com/tideover/tideover/engine/jetstream/natstest"
	"github.com/tideover/tideover/internal/testwait"
	"github.com/tideover/tideover/retry"
)

// goldenCluster has the streams of a cluster that an earlier version wrote: commit 2f049d3.
// The flag -golden.record writes another such file, which takes some seconds.
const goldenCluster = "testdata/cluster1.json.gz"

var goldenRecord = flag.String("golden.record", "", "file to write the streams of a small cluster to")

// storedStream is a stream as NATS backs it up.
type storedStream struct {
	Config json.RawMessage `json:"config"`
	State  json.RawMessage `json:"state"`
	Data   []byte          `json:"data"`
}

// goldenRun is a run of the golden cluster.
type goldenRun struct {
	key   string
	state string // the state of the run after the cluster was opened
}

var goldenRuns = []goldenRun{
	{"done", engine.StateSucceeded},
	{"dead", engine.StateDead},
	{"waits", engine.StateWaiting},
	{"scheduled", engine.StateScheduled},
	{"paused", engine.StatePaused},
	{"canceled", engine.StateCanceled},
	{"limited", engine.StateSucceeded},
	{"late", engine.StateScheduled}, // was started after the snapshots
	{"lost", engine.StateSucceeded}, // an attempt was being made when the process ended
}

// goldenWorkflows returns the workflows of the golden cluster. first is their first step.
func goldenWorkflows(first func(context.Context, string) (string, error)) (golden, limited *engine.Workflow, err error) {
	golden, err = engine.NewWorkflow("golden",
		engine.Step("a", first, engine.Policy("fixed(200000h) attempts=2")),
		engine.Step("b", func(ctx context.Context, _ string) (string, error) { return engine.Result[string](ctx, "a") }, engine.After("a")))
	if err != nil {
		return nil, nil, err
	}
	limited, err = engine.NewWorkflow("limited", engine.Step("only", first), engine.MaxRuns(1))
	return golden, limited, err
}

var goldenSchedule = engine.Schedule{Name: "leap-day", Workflow: "golden", Cron: "0 3 29 2 *", Input: json.RawMessage(`"leap"`), Skip: true}

// TestAClusterOfAnEarlierVersionOpens opens the streams of a cluster that an earlier
// version wrote, and looks for all that is in them.
func TestAClusterOfAnEarlierVersionOpens(t *testing.T) {
	if *goldenRecord != "" {
		recordGolden(t, *goldenRecord)
	}
	servers := natstest.Start(t, 1)
	nc := connectTo(t, servers)
	for _, s := range readStreams(t, goldenCluster) {
		restoreStream(t, nc, s)
	}
	golden, limited, err := goldenWorkflows(func(_ context.Context, key string) (string, error) { return "a of " + key, nil })
	if err != nil {
		t.Fatal(err)
	}
	e := openGolden(t, servers, 100*365*24*time.Hour, golden, limited)
	defer e.Close(t.Context())
	for _, want := range goldenRuns {
		ids, err := e.Find(t.Context(), want.key, 2)
		if err != nil || len(ids) != 1 {
			t.Fatalf("%q: %d runs, %v", want.key, len(ids), err)
		}
		if want.key == "lost" {
			if _, err := e.Wait(t.Context(), ids[0]); err != nil {
				t.Fatal(err)
			}
		}
		i, err := e.Get(t.Context(), ids[0])
		if err != nil {
			t.Fatal(err)
		}
		if i.State != want.state || string(i.Input) != fmt.Sprintf("%q", want.key) || i.Key != want.key {
			t.Errorf("%q is %s, want %s; input %s, key %s", want.key, i.State, want.state, i.Input, i.Key)
		}
		w := golden
		if want.key == "limited" {
			w = limited
		}
		again, err := e.Start(t.Context(), w, want.key, engine.Key(want.key))
		if err != nil || !again.Existing || again.ID != i.ID || again.InputDiffers {
			t.Errorf("a start with the key %q = %+v, %v; want run %s", want.key, again, err, i.ID)
		}
	}
	dead, err := e.DeadGroups(t.Context(), 10)
	if err != nil || len(dead.Groups) != 1 || dead.Groups[0].Count != 1 || dead.Groups[0].Error != "never" {
		t.Errorf("dead runs: %+v, %v", dead, err)
	}
	list, err := e.Schedules(t.Context())
	if err != nil || len(list) != 1 || list[0].Name != goldenSchedule.Name || list[0].Cron != goldenSchedule.Cron || !list[0].Skip {
		t.Errorf("schedules: %+v, %v", list, err)
	}
	stats, err := e.Stats(t.Context())
	// That version did not store which machine the owner was on, so its clock is not known.
	stats.Troubles = slices.DeleteFunc(stats.Troubles, func(t engine.Trouble) bool { return t.Works })
	if err != nil || len(stats.Troubles) > 0 || len(stats.Silent) > 0 {
		t.Errorf("troubles: %v, silent: %v, %v", stats.Troubles, stats.Silent, err)
	}
}

func openGolden(t *testing.T, servers *natstest.Cluster, retention time.Duration, workflows ...*engine.Workflow) *engine.Engine {
	t.Helper()
	dir, logger := t.TempDir(), slog.New(slog.DiscardHandler)
	log, err := jetstream.Open(t.Context(), jetstream.Config{
		URL: servers.URL(), Name: "golden", Shards: 2, MemberName: "golden", Cache: filepath.Join(dir, "cache"), Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.Open(t.Context(), engine.Config{
		Log: log, Dir: filepath.Join(dir, "views"), Workflows: workflows, Retention: retention, DeadRetention: 100 * 365 * 24 * time.Hour, Logger: logger,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func connectTo(t *testing.T, servers *natstest.Cluster) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(servers.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// request sends a request to the JetStream API of the servers and decodes the answer.
func request(t *testing.T, nc *nats.Conn, subject string, body, answer any) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	m, err := nc.RequestWithContext(t.Context(), subject, text)
	if err != nil {
		t.Fatalf("%s: %v", subject, err)
	}
	readAnswer(t, subject, m, answer)
}

func readAnswer(t *testing.T, subject string, m *nats.Msg, answer any) {
	t.Helper()
	var failed struct {
		Error *natsjs.APIError `json:"error"`
	}
	if err := errors.Join(json.Unmarshal(m.Data, &failed), json.Unmarshal(m.Data, answer)); err != nil {
		t.Fatalf("%s: %v: %s", subject, err, m.Data)
	}
	if failed.Error != nil {
		t.Fatalf("%s: %v", subject, failed.Error)
	}
}

func readStreams(t *testing.T, path string) (list []storedStream) {
	t.Helper()
	f, err := os.Open(filepath.FromSlash(path))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unzip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(unzip).Decode(&list); err != nil {
		t.Fatal(err)
	}
	return list
}

// restoreStream makes a stream as it was, sequences included.
func restoreStream(t *testing.T, nc *nats.Conn, s storedStream) {
	t.Helper()
	var config struct {
		Name string `json:"name"`
	}
	if err := json.Unmarshal(s.Config, &config); err != nil {
		t.Fatal(err)
	}
	var to struct {
		Subject string `json:"deliver_subject"`
	}
	request(t, nc, "$JS.API.STREAM.RESTORE."+config.Name, map[string]json.RawMessage{"config": s.Config, "state": s.State}, &to)
	for part := range slices.Chunk(s.Data, 64<<10) {
		if m, err := nc.RequestWithContext(t.Context(), to.Subject, part); err != nil || len(m.Data) > 0 {
			t.Fatalf("restore %s: %v, %v", config.Name, m, err)
		}
	}
	m, err := nc.RequestWithContext(t.Context(), to.Subject, nil)
	if err != nil {
		t.Fatalf("restore %s: %v", config.Name, err)
	}
	readAnswer(t, "restore "+config.Name, m, &struct{}{})
}

// backUpStream returns a stream as it is.
func backUpStream(t *testing.T, nc *nats.Conn, name string) (s storedStream) {
	t.Helper()
	parts, err := nc.SubscribeSync(nats.NewInbox())
	if err != nil {
		t.Fatal(err)
	}
	request(t, nc, "$JS.API.STREAM.SNAPSHOT."+name, map[string]any{"deliver_subject": parts.Subject, "no_consumers": true}, &s)
	for {
		m, err := parts.NextMsgWithContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Data) == 0 {
			return s
		}
		s.Data = append(s.Data, m.Data...)
		if m.Reply != "" {
			if err := m.Respond(nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// recordGolden creates a cluster with runs in many states, ends its only process in the
// middle of an attempt, and writes the streams to a file.
func recordGolden(t *testing.T, path string) {
	t.Helper()
	servers := natstest.Start(t, 1)
	golden, limited, err := goldenWorkflows(func(ctx context.Context, key string) (string, error) {
		switch key {
		case "dead":
			return "", retry.Permanent(errors.New("never"))
		case "waits":
			return "", errors.New("not yet")
		case "lost":
			<-ctx.Done()
			return "", ctx.Err()
		}
		return "a of " + key, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// A quarter of the retention is the longest time between two snapshots.
	e := openGolden(t, servers, time.Minute, golden, limited)
	start := func(w *engine.Workflow, key string, opts ...engine.StartOption) string {
		s, err := e.Start(t.Context(), w, key, append(opts, engine.Key(key))...)
		if err != nil {
			t.Fatal(err)
		}
		return s.ID
	}
	reaches := func(id, state string) {
		testwait.Until(t, "a run is "+state, func() bool {
			i, err := e.Get(t.Context(), id)
			return err == nil && i.State == state
		})
	}
	far := engine.At(time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC))
	check := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	check(e.SetSchedules(t.Context(), []engine.Schedule{goldenSchedule}))
	reaches(start(golden, "done"), engine.StateSucceeded)
	reaches(start(golden, "dead"), engine.StateDead)
	reaches(start(golden, "waits"), engine.StateWaiting)
	start(golden, "scheduled", far)
	check(e.Pause(t.Context(), start(golden, "paused", far), "golden"))
	check(e.Cancel(t.Context(), start(golden, "canceled", far), "golden"))
	reaches(start(limited, "limited"), engine.StateSucceeded)

	nc := connectTo(t, servers)
	js, err := natsjs.New(nc)
	check(err)
	blobs, err := js.ObjectStore(t.Context(), "golden-blobs")
	check(err)
	testwait.Until(t, "both shards have a snapshot, and one an archive", func() bool {
		list, err := blobs.List(t.Context())
		if err != nil {
			return false
		}
		var names strings.Builder
		for _, b := range list {
			names.WriteString(b.Name + "\n")
		}
		return strings.Contains(names.String(), "0/snapshot-") && strings.Contains(names.String(), "1/snapshot-") && strings.Contains(names.String(), "/archive-")
	})
	start(golden, "late", far)
	reaches(start(golden, "lost"), engine.StateRunning)
	killed, cancel := context.WithCancel(t.Context())
	cancel()
	check(e.Close(killed))

	var list []storedStream
	for name := range js.StreamNames(t.Context()).Name() {
		list = append(list, backUpStream(t, nc, name))
	}
	var file bytes.Buffer
	zip := gzip.NewWriter(&file)
	check(json.NewEncoder(zip).Encode(list))
	check(zip.Close())
	check(os.WriteFile(path, file.Bytes(), 0o644))
	_, _ = io.WriteString(os.Stderr, fmt.Sprintf("%d streams, %d bytes\n", len(list), file.Len()))
}
