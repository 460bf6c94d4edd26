package engine_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/klauspost/compress/zstd"
	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/engine/internal/codec"
	"github.com/tideover/tideover/engine/internal/machine"
	"github.com/tideover/tideover/engine/internal/store"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/engine/journal/memlog"
	"github.com/tideover/tideover/engine/sqlitelog"
	"github.com/tideover/tideover/internal/testfile"
)

// The files testdata/golden/*.txt have what the engine stores for the same commands, in virtual time
// and with the same random numbers: the records of the log, and the snapshots, archives and rows of
// views that follow from them. A change of a stored byte, of the order of records or of the order of
// random numbers fails the test. Lines have a hash of the bytes; the rest is for the reader. The
// records are decoded here and not by package machine, so that its types can change.
//
// How many records of one moment are in one entry depends on how goroutines are scheduled. So the
// records of a moment count as one entry, and the number of an entry, the random id of an append and
// what follows from both are not compared.

// goldenCase is a sequence of commands. Things that happen at the same moment are stored in no
// particular order, and so are attempts of different queues that can begin in the same turn: handlers take
// different times, and a case does one thing after the other.
type goldenCase struct {
	name      string
	config    engine.Config
	workflows func() []*engine.Workflow
	run       func(e *goldenEngine)

	// unordered says that runs of several queues continue at the same moment. Then the records
	// of a moment are compared in the order of their bytes, and not in that of the log.
	unordered bool
}

func TestStoredBytesStayTheSame(t *testing.T) {
	t.Parallel()
	for _, c := range goldenCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var text strings.Builder
			synctest.Test(t, func(t *testing.T) {
				moments := joinMoments(t, c.execute(t))
				dumpMoments(&text, moments, c.unordered)
				for part := 1; part <= 3; part++ {
					some := moments[:len(moments)*part/3]
					fmt.Fprintf(&text, "\nAfter %d of %d moments:\n", len(some), len(moments))
					dumpState(t, &text, some)
					dumpFolder(t, &text, some)
				}
			})
			compareGolden(t, filepath.Join("testdata", "golden", c.name+".txt"), text.String())
		})
	}
}

// execute executes the commands and returns the entries of the log.
func (c *goldenCase) execute(t *testing.T) []journal.Entry {
	t.Helper()
	log := &goldenLog{random: rand.New(rand.NewPCG(1, 2))}
	e := &goldenEngine{t: t, workflows: c.workflows()}
	e.open = func() {
		cfg := c.config
		cfg.Log, cfg.Rand, cfg.Workflows, cfg.Logger = log.open(), log.draw, e.workflows, slog.New(slog.DiscardHandler)
		var err error
		if e.Engine, err = engine.Open(context.Background(), cfg); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
	}
	e.open()
	c.run(e)
	e.check(e.Close(context.Background()))
	return log.entries
}

// goldenLog is a log in memory that keeps all entries, and the source of random numbers of its
// engine.
type goldenLog struct {
	journal.Log
	store memlog.Store

	mu      sync.Mutex
	entries []journal.Entry
	random  *rand.Rand
	drawn   []uint64 // numbers that were drawn from random
	next    int      // index in drawn of the next number
}

func (l *goldenLog) open() journal.Log {
	l.Log = l.store.Open()
	return l
}

// draw returns the next random number.
func (l *goldenLog) draw() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == len(l.drawn) {
		l.drawn = append(l.drawn, l.random.Uint64())
	}
	l.next++
	return l.drawn[l.next-1]
}

func (l *goldenLog) Lease(ctx context.Context, shard int) (journal.Lease, error) {
	lease, err := l.Log.Lease(ctx, shard)
	if err != nil {
		return nil, err
	}
	return &goldenLease{lease, l}, nil
}

type goldenLease struct {
	journal.Lease
	log *goldenLog
}

// Append puts the two random numbers of the id back: other numbers must not depend on how many
// entries there are.
func (l *goldenLease) Append(ctx context.Context, expected uint64, id journal.ID, data []byte) (uint64, error) {
	seq, err := l.Lease.Append(ctx, expected, id, data)
	if err != nil {
		return seq, err
	}
	l.log.mu.Lock()
	defer l.log.mu.Unlock()
	l.log.entries = append(l.log.entries, journal.Entry{Seq: seq, Epoch: l.Epoch(), ID: id, Data: bytes.Clone(data)})
	if l.log.next -= 2; l.log.next < 0 {
		return seq, errors.New("the id of an append is not made of the last two random numbers")
	}
	for i, n := range l.log.drawn[l.log.next : l.log.next+2] {
		if n != binary.LittleEndian.Uint64(id[8*i:]) {
			return seq, errors.New("the id of an append is not made of the last two random numbers")
		}
	}
	return seq, nil
}

// compareGolden compares a text with a file, and shows the first difference: all other lines follow
// from it.
func compareGolden(t *testing.T, path, got string) {
	t.Helper()
	stored, err := os.ReadFile(path)
	if testfile.Update() {
		testfile.Golden(t, path, got)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(string(stored), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(want) || line != want[i] {
			t.Fatalf("%s:%d: the engine stores other bytes\nafter %s\ngot   %s\nwant  %s", path, i+1,
				strings.Join(want[max(0, i-3):min(i, len(want))], "\n      "), line, strings.Join(want[min(i, len(want)):min(i+1, len(want))], ""))
		}
	}
	if len(got) != len(stored) {
		t.Fatalf("%s: %d bytes, want %d", path, len(got), len(stored))
	}
}

// goldenEngine is an engine in virtual time.
type goldenEngine struct {
	*engine.Engine
	t         *testing.T
	workflows []*engine.Workflow
	open      func()
}

func (e *goldenEngine) check(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Error(err)
	}
	synctest.Wait()
}

// elapse lets time pass. real clock: it is called in a bubble.
func (e *goldenEngine) elapse(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// start starts a run of the workflow with this name, and returns its id.
func (e *goldenEngine) start(workflow string, input any, opts ...engine.StartOption) string {
	e.t.Helper()
	i := slices.IndexFunc(e.workflows, func(w *engine.Workflow) bool { return w.Name() == workflow })
	s, err := e.Start(e.t.Context(), e.workflows[i], input, opts...)
	e.check(err)
	return s.ID
}

// wants checks the state of a run: a golden file with other outcomes than intended covers less.
func (e *goldenEngine) wants(id, state string) {
	e.t.Helper()
	run, err := e.Get(e.t.Context(), id)
	if e.check(err); err == nil && run.State != state {
		e.t.Errorf("run %s of %s is %s (%s), want %s", id, run.Workflow, run.State, run.Error, state)
	}
}

// wait waits until the run has ended, and checks its state.
func (e *goldenEngine) wait(id, state string) {
	e.t.Helper()
	_, err := e.Wait(e.t.Context(), id)
	e.check(err)
	e.wants(id, state)
}

// crash ends the engine as if its process were killed, and opens it again.
func (e *goldenEngine) crash() {
	e.t.Helper()
	now, cancel := context.WithCancel(context.Background())
	cancel()
	e.check(e.Close(now))
	e.open()
}

// restart closes the engine and opens it again with these workflows.
func (e *goldenEngine) restart(workflows ...*engine.Workflow) {
	e.t.Helper()
	e.check(e.Close(context.Background()))
	e.workflows = workflows
	e.open()
}

// moment has the records that were stored at one time by one owner.
type moment struct {
	epoch   uint64
	format  byte
	header  []byte // the times, encoded
	records []byte
}

// joinMoments joins the entries that have the same time.
func joinMoments(t *testing.T, entries []journal.Entry) (list []moment) {
	t.Helper()
	for _, e := range entries {
		body, sum := e.Data[:len(e.Data)-4], binary.LittleEndian.Uint32(e.Data[len(e.Data)-4:])
		if crc32.Checksum(body, castagnoli) != sum {
			t.Errorf("entry %d has a wrong checksum", e.Seq)
		}
		in := codec.Reader{Data: body[1:]}
		in.Varint() // time
		in.Varint() // time since boot
		m := moment{e.Epoch, body[0], body[1 : len(body)-len(in.Data)], in.Data}
		if n := len(list); n > 0 && list[n-1].epoch == m.epoch && bytes.Equal(list[n-1].header, m.header) {
			list[n-1].format = max(list[n-1].format, m.format)
			list[n-1].records = slices.Concat(list[n-1].records, m.records)
			continue
		}
		list = append(list, m)
	}
	for i := range list {
		list[i].records = beginAfterCalls(list[i].records)
	}
	return list
}

// beginAfterCalls moves the begin of an operation behind calls of other operations of its run: whether it
// begins between the calls of two branches depends on how goroutines are scheduled.
func beginAfterCalls(data []byte) []byte {
	records := cutRecords(data)
	for i := len(records) - 1; i >= 0; i-- {
		for j := i; j+1 < len(records) && areOfBranches(records[j], records[j+1]); j++ {
			records[j], records[j+1] = records[j+1], records[j]
		}
	}
	return slices.Concat(records...)
}

// areOfBranches reports whether the records are the begin of an operation and the call of another one
// of the same run.
func areOfBranches(begun, called []byte) bool {
	if begun[0] != byte(machine.Begun) || called[0] != byte(machine.Called) {
		return false
	}
	run, step := stepOf(begun)
	of, other := stepOf(called)
	return run == of && step > 0 && step != other
}

// stepOf returns the run of a record and its step, which is 0 for the function of a flow.
func stepOf(record []byte) (run [16]byte, step uint64) {
	in := codec.Reader{Data: record[1:]}
	mask := in.Uvarint()
	in.Varint() // time
	if mask&1 != 0 {
		run = in.Array()
	}
	if mask&2 != 0 {
		step = in.Uvarint()
	}
	return run, step
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// entry returns the moment as one entry.
func (m *moment) entry() []byte {
	data := slices.Concat([]byte{m.format}, m.header, m.records)
	return binary.LittleEndian.AppendUint32(data, crc32.Checksum(data, castagnoli))
}

// store appends the moments to a log.
func storeMoments(t *testing.T, log journal.Log, list []moment) {
	t.Helper()
	ctx := context.Background()
	lease, err := log.Lease(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range list {
		if _, err := lease.Append(ctx, uint64(i), journal.ID{byte(i), byte(i >> 8), 1}, list[i].entry()); err != nil {
			t.Fatal(err)
		}
	}
	if err := lease.Release(); err != nil {
		t.Fatal(err)
	}
}

// dumpState writes the snapshot of the state after the moments.
func dumpState(t *testing.T, out *strings.Builder, list []moment) {
	t.Helper()
	log := new(memlog.Store).Open()
	defer log.Close()
	storeMoments(t, log, list)
	lease, err := log.Lease(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	state, err := store.Fold(context.Background(), lease)
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	snapshot := state.Machine.Snapshot()
	out.WriteString("snapshot:")
	for more := true; more; {
		var frame []byte
		frame, more = snapshot.Next(nil, store.FrameRuns)
		dumpFrame(out, frame)
	}
	out.WriteByte('\n')
}

// dumpFolder opens a folder whose log has the moments, without the code of its runs, and writes what
// the engine stores in the folder: the rows of the view, and later records of missing code, a snapshot
// and an archive. real clock: it is called in a bubble.
func dumpFolder(t *testing.T, out *strings.Builder, list []moment) {
	t.Helper()
	ctx, dir := context.Background(), t.TempDir()
	log, err := sqlitelog.Open(ctx, sqlitelog.Config{Dir: dir, Durability: sqlitelog.OS})
	if err != nil {
		t.Fatal(err)
	}
	storeMoments(t, log, list)
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4)).Uint64
	openFor := func(d time.Duration) {
		cfg := engine.Config{Dir: dir, Durability: engine.OS, Rand: random, Logger: slog.New(slog.DiscardHandler)}
		engine.ForVirtualTime(&cfg)
		e, err := engine.Open(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(d)
		synctest.Wait()
		if err := e.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	openFor(time.Second) // code may still be registered
	dumpView(t, out, filepath.Join(dir, "view.db"))
	openFor(11 * time.Minute) // a snapshot is due after 10 minutes
	readFolder(t, out, dir, uint64(len(list)))
}

// readFolder writes the entries after a number, and the blobs, of a folder.
func readFolder(t *testing.T, out *strings.Builder, dir string, after uint64) {
	t.Helper()
	ctx := context.Background()
	log, err := sqlitelog.OpenReader(dir, sqlitelog.OS)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	first, _, err := log.Bounds(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var entries []journal.Entry
	for e, err := range log.Read(ctx, max(first, after+1)) {
		if err != nil {
			t.Fatal(err)
		}
		e.Data = bytes.Clone(e.Data)
		entries = append(entries, e)
	}
	dumpMoments(out, joinMoments(t, entries), true) // code of several queues is missing at the same moment
	blobs, err := log.Blobs(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range blobs {
		raw, err := log.Get(ctx, b.Name)
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(raw)
		if err = errors.Join(err, raw.Close()); err != nil {
			t.Fatal(err)
		}
		dumpBlob(out, b.Name, data)
	}
}

// hashOf returns the beginning of the SHA-256, which is enough to see a change.
func hashOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:8])
}

// dumpMoments writes the records of moments.
func dumpMoments(out *strings.Builder, list []moment, unordered bool) {
	runs := runNames{}
	for _, m := range list {
		in := codec.Reader{Data: m.header}
		at, sinceBoot := in.Varint(), in.Varint()
		records := cutRecords(m.records)
		if unordered {
			slices.SortFunc(records, bytes.Compare)
		}
		fmt.Fprintf(out, "%s, %v since boot, epoch %d, format %d: %d bytes %s\n", time.Unix(0, at).UTC().Format(time.RFC3339Nano),
			time.Duration(sinceBoot), m.epoch, m.format, len(m.records), hashOf(slices.Concat(records...)))
		for _, rec := range records {
			in := codec.Reader{Data: rec}
			if fmt.Fprintf(out, "\t%s\n", dumpRecord(&in, runs)); in.Err != nil {
				fmt.Fprintf(out, "\t%v\n", in.Err)
			}
		}
	}
}

// cutRecords returns the records one by one.
func cutRecords(data []byte) (list [][]byte) {
	for in := (codec.Reader{Data: data}); len(in.Data) > 0; {
		from := in.Data
		dumpRecord(&in, runNames{})
		list = append(list, from[:len(from)-len(in.Data)])
	}
	return list
}

// recordFields has the names of the fields of a record, by the bit that says whether it is there.
// The fields are encoded in this order, except that the bit of clock is the field.
var recordFields = [...]string{
	"run", "step", "attempt", "due", "delay", "prev", "by", "reason", "deadline", "other", "hash", "text", "data", "outputs", "ends", "clock", "count",
}

// dumpRecord decodes a record.
func dumpRecord(in *codec.Reader, runs runNames) string {
	var out strings.Builder
	kind, mask, at := in.Byte(), in.Uvarint(), in.Varint()
	out.WriteString(machine.Kind(kind).String())
	if at != 0 {
		fmt.Fprintf(&out, " at=%v", time.Duration(at))
	}
	for i, name := range recordFields {
		if mask&(1<<i) == 0 {
			continue
		}
		fmt.Fprintf(&out, " %s=", name)
		switch name {
		case "run", "other":
			out.WriteString(runs.name(in.Array()))
		case "step", "attempt", "count":
			fmt.Fprint(&out, in.Uvarint())
		case "due", "deadline", "delay", "prev": // the first two relative to the entry
			out.WriteString(time.Duration(in.Varint()).String())
		case "by", "reason", "ends":
			fmt.Fprint(&out, in.Byte())
		case "hash":
			hash := in.Array()
			out.WriteString(hex.EncodeToString(hash[:4]))
		case "text", "data":
			out.WriteString(readable(in.Bytes()))
		case "outputs":
			out.WriteString(dumpOutputs(in))
		case "clock":
			out.WriteString("true")
		}
	}
	return out.String()
}

func dumpOutputs(in *codec.Reader) string {
	list := make([]string, in.Number())
	for i := range list {
		if list[i] = "none"; in.Byte() == 1 {
			list[i] = readable(in.Bytes())
		}
	}
	return "[" + strings.Join(list, " ") + "]"
}

// readable returns the bytes as text, or as hexadecimal digits.
func readable(b []byte) string {
	if utf8.Valid(b) && !strings.ContainsFunc(string(b), unicode.IsControl) {
		return "`" + string(b) + "`"
	}
	return fmt.Sprintf("%x", b)
}

// runNames has the runs of a log by id. A run is named by a number, with its id the first time.
type runNames map[[16]byte]int

func (r runNames) name(id [16]byte) string {
	if n, ok := r[id]; ok {
		return fmt.Sprint(n)
	}
	r[id] = len(r) + 1
	return fmt.Sprintf("%d(%s)", r[id], codec.FormatID(id))
}

// dumpBlob writes the hashes of the frames of a snapshot, or of an archive. What counts are the
// bytes before compression: another version of the compressor may return others.
func dumpBlob(out *strings.Builder, name string, data []byte) {
	fmt.Fprintf(out, "%s:", name)
	frames := [][]byte{data}
	if strings.HasPrefix(name, "snapshot-") {
		frames = cutFrames(data)
	}
	for _, frame := range frames {
		plain, err := unzipAll(frame)
		if err != nil {
			fmt.Fprint(out, " ", err)
		}
		dumpFrame(out, plain)
	}
	out.WriteByte('\n')
}

func dumpFrame(out *strings.Builder, frame []byte) {
	if len(frame) > 0 && frame[0] == 's' {
		frame = sortState(frame)
	}
	fmt.Fprintf(out, " %d bytes %s", len(frame), hashOf(frame))
}

// sortState returns the frame of the state without its checksum, and with the elements of each list
// in order: those of maps are encoded in no particular order.
func sortState(frame []byte) (out []byte) {
	in := codec.Reader{Data: frame[1:]}
	in = codec.Reader{Data: in.Bytes()}
	out = append(out, in.Byte()) // the format
	text, signed := func() { in.Bytes() }, func() { in.Varint() }
	cut := func(fields ...func()) []byte {
		from := in.Data
		for _, read := range fields {
			read()
		}
		return from[:len(from)-len(in.Data)]
	}
	out = append(out, cut(signed, signed, signed, text)...) // number, time, time since boot, boot
	counters := func() {
		for range 7 {
			in.Uvarint()
		}
	}
	lists := [][]func(){
		{signed, text},       // definitions
		{text, counters},     // workflows
		{text, signed, text}, // schedules
		{func() { in.Array() }, text, signed, text}, // keys of runs that have ended
		{text, signed, text},                        // pauses
	}
	for _, fields := range lists {
		if len(in.Data) == 0 {
			break // there are no pauses in older formats
		}
		items := make([][]byte, in.Number())
		for i := range items {
			items[i] = cut(fields...)
		}
		slices.SortFunc(items, bytes.Compare)
		out = append(out, fmt.Sprint(len(items), ":")...)
		out = append(out, bytes.Join(items, nil)...)
	}
	if in.Err != nil || len(in.Data) > 0 {
		return append([]byte("unknown form: "), frame...)
	}
	return out
}

// cutFrames returns the compressed frames of a snapshot: each comes after its length.
func cutFrames(data []byte) (frames [][]byte) {
	for len(data) >= 4 {
		n := min(int(binary.LittleEndian.Uint32(data)), len(data)-4)
		frames, data = append(frames, data[4:4+n]), data[4+n:]
	}
	return frames
}

func unzipAll(data []byte) ([]byte, error) {
	unzip, err := zstd.NewReader(bytes.NewReader(data), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer unzip.Close()
	return io.ReadAll(unzip)
}

// viewTables has a query for each table of a view that has runs. The identity of the log is random,
// and the tables of the search index follow from the rows.
var viewTables = []string{
	"SELECT id, text FROM names ORDER BY id",
	"SELECT key, value FROM meta WHERE key=1",
	"SELECT place, id, workflow, state, attempts, next, error, body FROM runs ORDER BY place",
	"SELECT place, data FROM payloads ORDER BY place",
	"SELECT id, place FROM aside ORDER BY id",
	"SELECT place, key FROM tags ORDER BY place, key",
}

// dumpView writes the rows of a view.
func dumpView(t *testing.T, out *strings.Builder, path string) {
	t.Helper()
	c, err := sqlite.OpenConn(path, sqlite.OpenReadOnly)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, query := range viewTables {
		_, table, _ := strings.Cut(query, "FROM ")
		table, _, _ = strings.Cut(table, " ")
		err := sqlitex.ExecuteTransient(c, query, &sqlitex.ExecOptions{ResultFunc: func(row *sqlite.Stmt) error {
			out.WriteString(table + ":")
			for i := range row.ColumnCount() {
				out.WriteString(" " + dumpColumn(row, i))
			}
			out.WriteByte('\n')
			return nil
		}})
		if err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
}

func dumpColumn(row *sqlite.Stmt, i int) string {
	if row.ColumnType(i) != sqlite.TypeBlob {
		return cmp.Or(row.ColumnText(i), "none")
	}
	b := make([]byte, row.ColumnLen(i))
	row.ColumnBytes(i, b)
	if len(b) > 40 {
		return fmt.Sprintf("%d bytes %s", len(b), hashOf(b))
	}
	return readable(b)
}
