package gateway

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/internal/clock"
	"github.com/tideover/tideover/internal/secret"
	"github.com/tideover/tideover/retry"
)

// timeline has the steps of a request whose record is kept. A request gets it when it is
// sampled, and otherwise when it first fails, waits or moves, so that a request that succeeds at
// once costs nothing. The methods of a nil timeline do nothing.
type timeline struct {
	mu       sync.Mutex
	steps    []timelineStep
	last     int // number of the latest step
	omitted  int
	waited   time.Duration // sum of the finished waits of omitted steps
	trouble  bool          // the request failed, waited or moved
	attempts int
	moves    int
	model    string
	hasModel bool // model is final: a later attempt would not find another
	tokens   tokenReader
}

// timelineStep is a step with its times, which are offsets from the arrival of the request.
type timelineStep struct {
	RequestStep
	number     int // from 1
	began, end time.Duration
}

// keep returns the timeline of the request, and makes it if there is none. It returns nil if the
// gateway keeps no records.
func (r *request) keep() *timeline {
	t := r.timeline.Load()
	if t != nil || r.g.records.off || r.ended.Load() {
		return t
	}
	if t = new(timeline); !r.timeline.CompareAndSwap(nil, t) {
		return r.timeline.Load()
	}
	r.g.records.begin(r)
	return t
}

// keepTrouble is keep for a request that failed, waited or moved.
func (r *request) keepTrouble() *timeline {
	t := r.keep()
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.trouble = true
	}
	return t
}

// offset returns the time from the arrival of the request to a reading of the clock.
func (r *request) offset(reading time.Duration) time.Duration {
	return max(clock.Time(reading).Sub(r.began), 0)
}

// sinceArrival returns the time since the arrival of the request.
func (r *request) sinceArrival() time.Duration { return time.Since(r.began) }

// add adds a step and returns its number. If there are too many steps, it drops one from the
// middle.
func (t *timeline) add(s timelineStep) int {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.insert(s)
}

// insert is add for a caller that holds t.mu.
func (t *timeline) insert(s timelineStep) int {
	t.last++
	s.number = t.last
	switch s.Kind {
	case StepAttempt:
		t.attempts++
	case StepFailover:
		t.moves++
	}
	if len(t.steps) == maxSteps {
		if old := &t.steps[firstSteps]; old.Kind == StepWait {
			t.waited += old.end - old.began
		}
		t.steps = slices.Delete(t.steps, firstSteps, firstSteps+1)
		t.omitted++
	}
	t.steps = append(t.steps, s)
	return s.number
}

// change calls f with the step that has this number, if it is still there.
func (t *timeline) change(number int, f func(*timelineStep)) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := len(t.steps) - 1; i >= 0; i-- {
		if t.steps[i].number == number {
			f(&t.steps[i])
			return
		}
	}
}

// remove removes a step, such as a wait that took no time.
func (t *timeline) remove(number int) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.steps = slices.DeleteFunc(t.steps, func(s timelineStep) bool { return s.number == number })
}

// startWait records that a wait begins, and returns the number of its step for endWait.
func (r *request) startWait(by string, p *provider) int {
	at := r.sinceArrival()
	return r.keep().add(timelineStep{RequestStep: RequestStep{Kind: StepWait, Provider: p.spec.Name, By: by, Open: true}, began: at, end: at})
}

// endWait records the end of a wait that began at a reading of the clock, and adds it to the
// statistics. It forgets a wait of at most a millisecond.
func (r *request) endWait(by string, step int, since time.Duration) {
	d := clock.Now() - since
	if d <= time.Millisecond {
		r.timeline.Load().remove(step)
		return
	}
	r.asked.stats.waits.add(by, d.Seconds())
	r.keepTrouble().change(step, func(s *timelineStep) { s.Open, s.end = false, s.began+d })
}

// waitedFor records a wait that is over.
func (r *request) waitedFor(by string, p *provider, since time.Duration) {
	d := clock.Now() - since
	if d <= time.Millisecond {
		return
	}
	r.asked.stats.waits.add(by, d.Seconds())
	at := r.offset(since)
	r.keepTrouble().add(timelineStep{RequestStep: RequestStep{Kind: StepWait, Provider: p.spec.Name, By: by}, began: at, end: at + d})
}

// observe adds a wait between two attempts to the timeline of its request.
func (s *recordStore) observe(ev *retry.Event) {
	if s.off || ev.Kind != retry.Waiting {
		return
	}
	r := s.find(ev.Call)
	if r == nil {
		return
	}
	at := r.sinceArrival()
	r.keepTrouble().add(timelineStep{RequestStep: RequestStep{Kind: StepWait, By: ev.By.String()}, began: at, end: at + ev.Delay})
}

// recordFailover adds a failover to the timeline.
func (r *request) recordFailover(from, to *provider, why string) {
	at := r.sinceArrival()
	r.keepTrouble().add(timelineStep{
		RequestStep: RequestStep{Kind: StepFailover, Provider: from.spec.Name, To: to.spec.Name, Why: recordText(why, maxRecordText)}, began: at, end: at,
	})
}

// recordNotUsed adds a fallback that was not used to the timeline.
func (r *request) recordNotUsed(p *provider, why string) {
	at := r.sinceArrival()
	r.keepTrouble().add(timelineStep{RequestStep: RequestStep{Kind: StepNotUsed, Provider: p.spec.Name, Why: recordText(why, maxRecordText)}, began: at, end: at})
}

// recordStart adds the attempt to the timeline, if there is one.
func (a *attempt) recordStart() {
	r := a.request
	t := r.timeline.Load()
	if a.hedge {
		t = r.keepTrouble()
	}
	if t != nil {
		t.addAttempt(a, r.offset(a.sent), true)
	}
}

// addAttempt adds a step for the attempt.
func (t *timeline) addAttempt(a *attempt, at time.Duration, open bool) {
	a.step = t.add(timelineStep{RequestStep: RequestStep{
		Kind: StepAttempt, Provider: a.p.spec.Name, Key: a.key.name, Hedge: a.hedge, Probe: a.pass.Probe() || a.keyProbe, Open: open,
	}, began: at, end: at})
}

// resultNames has the name of each resultKind in a record.
var resultNames = [...]string{succeeded: AttemptSucceeded, neutral: AttemptCanceled, failed: AttemptFailed, keyThrottled: AttemptThrottled, keyRejected: AttemptRejected}

// recordEnd records the result of the attempt. An attempt that succeeds is recorded only if the
// request has a timeline.
func (a *attempt) recordEnd(failure error) {
	r := a.request
	t := r.timeline.Load()
	if failure != nil || a.result.code >= http.StatusBadRequest {
		t = r.keepTrouble()
	}
	if t == nil {
		return
	}
	if a.step == 0 {
		t.addAttempt(a, r.offset(a.sent), true)
	}
	text := ""
	if failure != nil {
		text = recordText(secret.Unquoted(r.g.clean(failure)), maxRecordText)
	}
	end := r.sinceArrival()
	t.change(a.step, func(s *timelineStep) {
		s.Open, s.end, s.Result, s.Status, s.Why = false, end, resultNames[a.result.kind], a.result.code, text
	})
	if t.wantsModel() {
		t.readModel(a)
	}
}

// wantsModel reports whether an attempt may still find the model of the request.
func (t *timeline) wantsModel() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.hasModel
}

// recordCut records that the response of the attempt broke off.
func (a *attempt) recordCut(err error) {
	r := a.request
	t := r.keepTrouble()
	if t == nil {
		return
	}
	if a.step == 0 {
		t.addAttempt(a, r.offset(a.sent), false)
	}
	text, end := recordText(secret.Unquoted(r.g.clean(err)), maxRecordText), r.sinceArrival()
	t.change(a.step, func(s *timelineStep) { s.end, s.Result, s.Status, s.Why = end, AttemptCutShort, a.result.code, text })
}

// readModel finds the model of the request for its record. It does not wait for a body that is
// still on its way.
func (t *timeline) readModel(a *attempt) {
	r := a.request
	model := modelInQuery(r.query)
	if known := r.model.Load(); known != nil {
		model = cmp.Or(*known, model)
	}
	uploaded := r.upload.ended.Load()
	if model == "" && uploaded && hasJSON(a.req) {
		model = modelIn(headOf(a.req))
	}
	t.setModel(recordText(r.g.redact(model), maxRecordText), uploaded)
}

// setModel sets the model that an attempt has found, unless another attempt has set a final one since
// wantsModel. final says that a later attempt would not find another.
func (t *timeline) setModel(model string, final bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hasModel {
		t.model, t.hasModel = model, final || model != ""
	}
}

// info returns the record of the request as it is now.
func (r *request) info() RequestInfo {
	i := RequestInfo{
		Call: r.call, Time: r.began, Provider: r.asked.spec.Name, Route: r.g.recordRoute(r.method, r.path), Outcome: InProgress,
		RequestBytes: r.upload.bytes.Load(), ResponseBytes: r.sending.bytes.Load(), number: r.number,
	}
	r.response.describe(&i)
	r.timeline.Load().describe(&i, r.sinceArrival())
	return i
}

// describe sets the fields of a record that the timeline has. now is the time since the arrival
// of the request.
func (t *timeline) describe(i *RequestInfo, now time.Duration) {
	i.Seconds = now.Seconds()
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	over := i.Outcome != InProgress
	waited := t.waited
	i.Model, i.Attempts, i.Failovers, i.Omitted = t.model, t.attempts, t.moves, t.omitted
	i.InputTokens, i.OutputTokens = t.tokens.input, t.tokens.output
	i.Steps = make([]RequestStep, len(t.steps))
	steps := slices.Clone(t.steps)
	slices.SortStableFunc(steps, func(a, b timelineStep) int { return cmp.Compare(a.began, b.began) })
	for n := range steps {
		s := &steps[n]
		if s.Kind == StepWait && !s.Open && s.end > now { // a planned wait that lasts, or was ended
			s.Open, s.end = true, now
		}
		if s.Open {
			s.end, s.Open = max(now, s.began), !over
		}
		if s.Kind == StepWait {
			waited += s.end - s.began
		}
		s.At, s.Seconds = s.began.Seconds(), (s.end - s.began).Seconds()
		i.Steps[n] = s.RequestStep
	}
	i.Waited = waited.Seconds()
}

// finishRecord stores the record of the request, if it is kept: if it is sampled, had trouble, or
// did not succeed.
func (r *request) finishRecord() {
	outcome := r.response.outcome()
	t := r.timeline.Load()
	if t == nil && outcome != RequestSucceeded {
		t = r.keep()
	}
	// An attempt that does not end in time makes no timeline any more. One that has begun to make
	// it is either seen here, or sees in recordStore.begin that the request has ended.
	r.ended.Store(true)
	if t == nil {
		if t = r.timeline.Load(); t == nil {
			return
		}
	}
	kind := recordTrouble
	switch {
	case outcome == RequestRejected:
		kind = recordRejected
	case outcome != RequestSucceeded || t.hasTrouble():
	case r.sampled:
		kind = recordSample
	default: // its only wait was too short for the record
		r.g.records.drop(r)
		return
	}
	t.addFinal(r.response.lastAttempt())
	i := r.info()
	i.Sampled = kind == recordSample
	r.g.records.end(kind, &i)
}

func (t *timeline) hasTrouble() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.trouble
}

// addFinal adds the attempt whose response the caller got, if no step has it: it is the only
// one, and nothing but its response made the request worth a record.
func (t *timeline) addFinal(a *attempt) {
	if a == nil || a.step != 0 {
		return
	}
	t.addAttempt(a, a.request.offset(a.sent), false)
	t.change(a.step, func(s *timelineStep) {
		s.end = max(a.request.offset(a.answered), s.began)
		s.Result, s.Status = resultNames[a.result.kind], a.result.code
	})
}

// tokenReader finds the numbers of tokens that a response states. It keeps only a few bytes of
// the response, from its beginning and from its end, until the response has ended.
type tokenReader struct {
	on            bool
	head, tail    []byte
	input, output int64
}

const (
	tokenHead = 2 << 10
	tokenTail = 4 << 10
)

// wantTokens makes the timeline read the tokens of the response.
func (t *timeline) wantTokens() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tokens.on = true
}

// readTokens reads a part of the response. last means that no other part follows.
func (t *timeline) readTokens(p []byte, last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.tokens.on {
		return
	}
	if t.tokens.write(p); last {
		t.tokens.finish()
	}
}

// wantsTokens reports whether a response may state tokens in a form that can be read.
func wantsTokens(resp *http.Response) bool {
	kind := resp.Header.Get("Content-Type")
	return resp.StatusCode == http.StatusOK && len(resp.Header["Content-Encoding"]) == 0 &&
		(strings.HasPrefix(kind, "application/json") || strings.HasPrefix(kind, "text/event-stream"))
}

// write adds a part of the response.
func (k *tokenReader) write(p []byte) {
	if room := tokenHead - len(k.head); room > 0 {
		k.head = append(k.head, p[:min(room, len(p))]...)
	}
	if len(p) >= tokenTail {
		k.tail = append(k.tail[:0], p[len(p)-tokenTail:]...)
		return
	}
	if over := len(k.tail) + len(p) - tokenTail; over > 0 {
		k.tail = slices.Delete(k.tail, 0, over)
	}
	k.tail = append(k.tail, p...)
}

// The names of the fields in which APIs state tokens: those of OpenAI, of Anthropic and the
// newer API of OpenAI, and of Google.
var (
	inputFields  = []string{"prompt_tokens", "input_tokens", "promptTokenCount"}
	outputFields = []string{"completion_tokens", "output_tokens", "candidatesTokenCount"}
)

// finish reads the tokens and drops the bytes of the response. A later number replaces an
// earlier one: streams repeat the numbers with the latest state.
func (k *tokenReader) finish() {
	for _, part := range [...][]byte{k.head, k.tail} {
		text := string(part)
		k.input = cmp.Or(lastNumber(text, inputFields), k.input)
		k.output = cmp.Or(lastNumber(text, outputFields), k.output)
	}
	k.head, k.tail, k.on = nil, nil, false
}

// lastNumber returns the number of the last of the fields in a JSON text that may be cut, or 0.
func lastNumber(text string, names []string) (n int64) {
	last := -1
	for _, name := range names {
		field := `"` + name + `"`
		for at := 0; ; {
			i := strings.Index(text[at:], field)
			if i < 0 {
				break
			}
			i += at
			at = i + len(field)
			if i > 0 && text[i-1] == '\\' { // in a string, such as the text of a model
				continue
			}
			if v, ok := numberAfterColon(text[at:]); ok && i > last {
				last, n = i, v
			}
		}
	}
	return n
}

// numberAfterColon returns the number at the beginning of ": 123,". A number at the end of the
// text may be cut, so it does not count.
func numberAfterColon(text string) (n int64, ok bool) {
	text = strings.TrimLeft(text, " \n\r\t")
	if text == "" || text[0] != ':' {
		return 0, false
	}
	text = strings.TrimLeft(text[1:], " \n\r\t")
	for i := range len(text) {
		switch c := text[i]; {
		case c >= '0' && c <= '9' && n < 1<<50:
			n = 10*n + int64(c-'0')
		default:
			return n, i > 0
		}
	}
	return 0, false
}
