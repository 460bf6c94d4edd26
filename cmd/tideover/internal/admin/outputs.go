package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tideover/tideover/internal/console/control"

	"github.com/tideover/tideover/cmd/tideover/internal/output"
	"github.com/tideover/tideover/engine"
	"github.com/tideover/tideover/internal/secret"
)

// OutputQuery names the output of an attempt.
type OutputQuery struct {
	Run     string // as in [control.Runs.Find]
	Step    string // or operation, NAME#INDEX for an item, undo:NAME for an undo; "" means the one that failed or ran last
	Attempt int    // 0 means the last attempt that has ended

	// Operation is the number of an operation that a retry of the run has called again; 0 means the
	// last operation of that name.
	Operation int
}

// Output is the output of an attempt.
type Output struct {
	Run       string         `json:"run"`
	Step      string         `json:"step"`
	Attempt   int            `json:"attempt"`
	Ended     time.Time      `json:"ended"`
	Exit      *int           `json:"exit,omitempty"`      // exit code of a command
	Status    string         `json:"status,omitempty"`    // of a response, such as "HTTP/1.1 503 Service Unavailable"
	Request   string         `json:"request,omitempty"`   // method and URL of a request, without its query
	Command   string         `json:"command,omitempty"`   // command line of a command
	Operation int            `json:"operation,omitempty"` // number of the operation of a workflow that is code
	Member    string         `json:"member,omitempty"`    // name of the member of the cluster that has stored it, if that is another one
	Streams   []OutputStream `json:"streams"`

	record *output.Record
}

// OutputStream is a stream of an output. Its texts are valid UTF-8.
type OutputStream struct {
	Name    string `json:"name"`              // stdout, stderr or body
	Size    int64  `json:"size"`              // bytes of the whole stream
	Omitted int64  `json:"omitted,omitempty"` // bytes between head and tail
	More    bool   `json:"more,omitempty"`    // the stream is longer than size; it was not read to its end
	Head    string `json:"head"`
	Tail    string `json:"tail,omitempty"`
}

// Text returns the output as text, as [output.Record.WriteText] does. The bytes of commands are
// unchanged.
func (o *Output) Text() []byte {
	var b bytes.Buffer
	o.record.WriteText(&b)
	return b.Bytes()
}

// FileName returns a name for a file with the text. It has only letters, digits, dots, dashes and
// underscores.
func (o *Output) FileName() string {
	name := fmt.Sprintf("%s-%s-%d.txt", o.Run, o.Step, o.Attempt)
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".-_", r) {
			return r
		}
		return '_'
	}, name)
}

// Record returns the output with the bytes that are stored.
func (o *Output) Record() *output.Record { return o.record }

// newOutput returns an output for the API.
func newOutput(r *output.Record, member string) *Output {
	o := &Output{
		Run: r.Run, Step: r.Step, Attempt: r.Number, Ended: r.Ended, Exit: r.Exit, Status: r.Status, Operation: r.Operation, Member: member,
		Request: r.Request, Command: r.Command,
		Streams: []OutputStream{}, record: r,
	}
	for i := range r.Streams {
		s := &r.Streams[i]
		o.Streams = append(o.Streams, OutputStream{
			Name: s.Name, Size: s.Size, Omitted: s.Omitted(), More: s.More,
			Head: strings.ToValidUTF8(string(s.Head), "\uFFFD"), Tail: strings.ToValidUTF8(string(s.Tail), "\uFFFD"),
		})
	}
	return o
}

// Get returns the output of an attempt. If none is stored, the error has the code [control.CodeNotFound] and
// says why.
func (o *Outputs) Get(ctx context.Context, q OutputQuery) (*Output, error) {
	info, err := o.runs.Lookup(ctx, q.Run)
	if err != nil {
		return nil, err
	}
	asked := output.Attempt{Run: info.ID, Step: q.Step, Operation: q.Operation, Number: q.Attempt}
	step, err := stepOfOutput(info, q)
	switch {
	case err == nil:
		asked.Step, asked.Operation = outputName(step), step.Number
		if asked.Number, err = attemptOfOutput(info, step, q.Attempt); err != nil {
			return nil, err
		}
	case !mayBeUnlisted(info, q.Step):
		return nil, err
	}
	return o.get(ctx, asked)
}

// mayBeUnlisted reports whether the run may have called an operation of that name that it does not
// list: of many operations, a run lists some.
func mayBeUnlisted(info *engine.Info, name string) bool {
	if info.Operations == nil || info.Operations.Omitted == 0 || name == "" {
		return false
	}
	base, _, isItem := strings.Cut(strings.TrimPrefix(name, "undo:"), "#")
	return !isItem || slices.ContainsFunc(info.Steps, func(s engine.StepInfo) bool { return s.Name == base })
}

// outputName returns the name under which the outputs of a step or operation are stored: that of
// [engine.Task.Step].
func outputName(s *engine.StepInfo) string {
	if s.Kind == "undo" {
		return "undo:" + s.Name
	}
	return s.Name
}

// OutputOf names the output of an attempt of a step or operation.
func OutputOf(run string, s *engine.StepInfo, number int) output.Attempt {
	return output.Attempt{Run: run, Step: outputName(s), Operation: s.Number, Number: number}
}

// stepOfOutput returns the step or operation that is asked for. Of those with the same name, this is
// the last one, or the last one that has made the attempt. Without a name, it is the one that failed
// last, or ran last if none has failed.
func stepOfOutput(info *engine.Info, q OutputQuery) (*engine.StepInfo, error) {
	if q.Step != "" {
		return namedStep(info, q)
	}
	if s := latestStep(info); s != nil {
		return s, nil
	}
	return nil, control.NewError(control.CodeNotFound, "the run has made no attempt", "")
}

func namedStep(info *engine.Info, q OutputQuery) (found *engine.StepInfo, err error) {
	known := false
	for i := range slices.Backward(info.Steps) {
		s := &info.Steps[i]
		if s.Kind == "function" || outputName(s) != q.Step {
			continue
		}
		known = true
		if (q.Operation == 0 || s.Number == q.Operation) && (found == nil || !madeAttempt(found, q.Attempt) && madeAttempt(s, q.Attempt)) {
			found = s
		}
	}
	switch {
	case found != nil:
		return found, nil
	case known:
		return nil, control.NewError(control.CodeNotFound, fmt.Sprintf("step %s has no operation %d", control.Excerpt(q.Step), q.Operation), "")
	}
	return nil, noOutputOf(info, q.Step)
}

// latestStep returns the step at which a run of steps stands; else the one that failed last, or ran
// last if none has failed; nil if none has made an attempt.
func latestStep(info *engine.Info) *engine.StepInfo {
	var last, failed *engine.StepInfo
	seen := map[string]bool{}
	for i := range slices.Backward(info.Steps) {
		s := &info.Steps[i]
		name := outputName(s)
		again := seen[name] // a retry of the run has called it again
		seen[name] = seen[name] || s.Kind != "function"
		if s.Kind == "function" || len(s.Attempts) == 0 || again {
			continue
		}
		if s.Name == info.Step && s.Kind == "" {
			return s
		}
		if last == nil || beganLater(s, last) {
			last = s
		}
		if s.Attempts[len(s.Attempts)-1].Outcome == "failed" && (failed == nil || beganLater(s, failed)) {
			failed = s
		}
	}
	return cmp.Or(failed, last)
}

// madeAttempt reports whether the attempt is listed; 0 is any.
func madeAttempt(s *engine.StepInfo, number int) bool {
	return slices.ContainsFunc(s.Attempts, func(a engine.AttemptInfo) bool { return number == 0 || a.Number == number })
}

// beganLater reports whether the last attempt of a began after that of b.
func beganLater(a, b *engine.StepInfo) bool {
	return a.Attempts[len(a.Attempts)-1].Started.After(b.Attempts[len(b.Attempts)-1].Started)
}

// noOutputOf returns the error for a step that the run does not have. It names those that can have
// an output.
func noOutputOf(info *engine.Info, name string) error {
	var known []engine.StepInfo
	for _, s := range info.Steps {
		if s.Kind == "" || len(s.Attempts) > 0 && s.Kind != "function" {
			s.Name = outputName(&s)
			known = append(known, s)
		}
	}
	return control.CheckStep("step", info.Workflow, known, name)
}

// attemptOfOutput returns the number of an attempt of a step. 0 means the last one that has ended. It
// returns 0 if the history of the run is too long to know that one.
func attemptOfOutput(info *engine.Info, s *engine.StepInfo, number int) (int, error) {
	last := 0
	for i := range s.Attempts {
		a := &s.Attempts[i]
		switch {
		case a.Outcome != "running":
			last = a.Number
		case a.Number == number:
			return 0, control.NewError(control.CodeNotFound, fmt.Sprintf("attempt %d of step %s is running", number, s.Name), "its output is stored when it ends")
		}
	}
	if number != 0 {
		return number, nil
	}
	if last == 0 && info.Omitted == 0 {
		return 0, control.NewError(control.CodeNotFound, fmt.Sprintf("step %s has no attempt that has ended", s.Name), "")
	}
	return last, nil
}

// OutputEnd is the end of the output of an attempt, for lists.
type OutputEnd struct {
	*output.Record       // with the last bytes of each stream
	Lost           error // why it could not be stored; nil if it is stored
}

// Ends returns the ends of the outputs of a run that this process has stored, at most that many
// bytes of each stream, and those of the given attempts that it could not store.
func (o *Outputs) Ends(i *engine.Info, most int) map[output.Attempt]OutputEnd {
	ends := map[output.Attempt]OutputEnd{}
	if o.store == nil {
		return ends
	}
	list, err := o.store.Ends(i.ID, most)
	if err != nil {
		return ends // the pages work without them, and System.Health reports a lasting problem
	}
	for _, r := range list {
		o.mask(r)
		ends[r.Attempt] = OutputEnd{Record: r}
	}
	for s := range i.Steps {
		for a := range i.Steps[s].Attempts {
			at := OutputOf(i.ID, &i.Steps[s], i.Steps[s].Attempts[a].Number)
			if _, stored := ends[at]; stored {
				continue
			}
			if why := o.store.Lost(at); why != nil {
				ends[at] = OutputEnd{&output.Record{Attempt: at}, why}
			}
		}
	}
	return ends
}

// Outputs reads the outputs of attempts, from this process and from other members of the cluster.
type Outputs struct {
	runs     *control.Runs // finds the runs
	store    *output.Store // nil if none are stored
	engine   *engine.Engine
	redactor *secret.Redactor
}

// mask masks the secrets that became known after the output was stored.
func (o *Outputs) mask(r *output.Record) {
	r.Request, r.Command = o.redactor.String(r.Request), o.redactor.String(r.Command)
	for i := range r.Streams {
		s := &r.Streams[i]
		omitted := s.Omitted()
		s.Head, s.Tail = o.redactor.Bytes(s.Head), o.redactor.Bytes(s.Tail)
		s.Size = int64(len(s.Head)+len(s.Tail)) + omitted
	}
}

// get returns an output that this process or another member of the cluster has stored.
func (o *Outputs) get(ctx context.Context, a output.Attempt) (*Output, error) {
	if o.store == nil {
		return nil, notStored(a, "this server stores no outputs")
	}
	r, err := o.store.Get(a)
	if err == nil {
		o.mask(r)
		return newOutput(r, ""), nil
	}
	if !errors.Is(err, output.ErrNotStored) {
		return nil, fmt.Errorf("read the output: %w", err)
	}
	if why := o.store.Lost(a); why != nil {
		return nil, notStored(a, fmt.Sprintf("it could not be written: %v", why))
	}
	return o.askMembers(ctx, a)
}

// hintRemoved is the hint if it is not known why an output is not stored.
const hintRemoved = "it was removed because of server.output-retention or server.output-storage, the server ended during the attempt, or the attempt had no output"

func notStored(a output.Attempt, hint string) *control.Error {
	if a.Number == 0 {
		return control.NewError(control.CodeNotFound, fmt.Sprintf("no output of step %s is stored", a.Step), hint)
	}
	return control.NewError(control.CodeNotFound, fmt.Sprintf("no output of attempt %d of step %s is stored", a.Number, a.Step), hint)
}

// memberTimeout is how long the other members of a cluster may take to send an output.
const memberTimeout = 5 * time.Second

// askMembers asks the other members of the cluster for an output. Each output is stored only by the
// member that made the attempt.
func (o *Outputs) askMembers(ctx context.Context, a output.Attempt) (*Output, error) {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	request, err := json.Marshal(memberRequest{Output: &a})
	if err != nil {
		return nil, err
	}
	replies, err := o.engine.Operator().AskMembers(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("ask the other members of the cluster for the output: %w", err)
	}
	var silent, answered []string
	var found *Output
	for _, reply := range replies {
		r := new(output.Record)
		switch {
		case reply.Err != nil || json.Unmarshal(reply.Reply, &r) != nil:
			silent = append(silent, reply.Member.Name)
		case r == nil || !r.Matches(a):
			answered = append(answered, reply.Member.Name)
		case found == nil || r.Ended.After(found.Ended):
			o.mask(r)
			found = newOutput(r, reply.Member.Name)
		}
	}
	switch {
	case found != nil:
		return found, nil
	case len(silent) > 0:
		e := notStored(a, "ask again later: the member that made the attempt has it")
		e.Message = fmt.Sprintf("%s here, and these members of the cluster did not answer: %s", e.Message, strings.Join(silent, ", "))
		return nil, e
	case len(answered) > 0:
		return nil, notStored(a, "this member and "+strings.Join(answered, ", ")+" do not have it: it is on a member that has left the cluster, or "+hintRemoved)
	}
	return nil, notStored(a, hintRemoved)
}

// memberRequest is a request of another member of the cluster. Releases that run side by side must
// understand it.
type memberRequest struct {
	Output *output.Attempt `json:"output,omitempty"`
}

// AnswerMember returns a function that answers the requests of other members of the cluster for outputs
// in the store. It answers null if the output is not stored.
func AnswerMember(store *output.Store) func(ctx context.Context, request json.RawMessage) (json.RawMessage, error) {
	return func(_ context.Context, request json.RawMessage) (json.RawMessage, error) {
		var m memberRequest
		if err := json.Unmarshal(request, &m); err != nil {
			return nil, err
		}
		if m.Output == nil {
			return nil, errors.New("unknown request, which a newer version may know")
		}
		r, err := store.Get(*m.Output)
		if err != nil && !errors.Is(err, output.ErrNotStored) {
			return nil, err
		}
		return json.Marshal(r)
	}
}
