package cli

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tideover/tideover/cmd/tideover/internal/nip90client"
	"github.com/tideover/tideover/cmd/tideover/internal/process"
	"github.com/tideover/tideover/internal/textfmt"
	"github.com/tideover/tideover/nostr"
	"github.com/tideover/tideover/nostr/dvm"
)

// jobReporter tells how a request goes: to standard error, or as JSON to standard
// output, where otherwise only the result goes.
type jobReporter struct {
	*remote
	zone *time.Location
	draw bool // progress is a line that rewrites itself

	mu     sync.Mutex
	shown  bool  // such a line is there
	failed error // standard output could not be written
}

func newJobReporter(r *remote) *jobReporter {
	return &jobReporter{remote: r, zone: time.Local, draw: process.IsTerminal(r.io.Err)}
}

// sentRequest, and jobEnd below, are JSON forms of request, besides entries.
type sentRequest struct {
	Type     string        `json:"type"` // sent
	At       time.Time     `json:"at"`
	Request  string        `json:"request"`
	Kind     int           `json:"kind"`
	Customer string        `json:"customer"`
	Provider string        `json:"provider"`
	Relays   []sentToRelay `json:"relays"`
}

type sentToRelay struct {
	Relay   string `json:"relay"`
	State   string `json:"state"` // acknowledged, pending, refused, dropped; closed if it refuses to send the answers
	Message string `json:"message,omitempty"`
}

type jobEnd struct {
	Type    string             `json:"type"` // end
	Request string             `json:"request"`
	Ending  nip90client.Ending `json:"ending"`
	Code    int                `json:"code"`
	Message string             `json:"message,omitempty"`
	Relays  []sentToRelay      `json:"relays,omitempty"` // of not-accepted and unreadable
}

// sent says which relays have the request.
func (p *jobReporter) sent(e *nostr.Event, receipts []nostr.Receipt) {
	if p.json {
		p.object(sentRequest{
			Type: "sent", At: time.Unix(e.CreatedAt, 0).UTC(), Request: e.ID, Kind: e.Kind,
			Customer: nostr.Npub(e.PubKey), Provider: nostr.Npub(e.Tags.Find("p").Value()), Relays: sentTo(receipts),
		})
		return
	}
	untaken := nip90client.Untaken(receipts)
	p.line("request %s is at %d of %s", e.ID[:shownID], len(receipts)-len(untaken), textfmt.Plural(len(receipts), "relay"))
	for _, r := range untaken {
		p.line("not at %s: %s", r.Relay, nip90client.Describe(r))
	}
}

func sentTo(receipts []nostr.Receipt) []sentToRelay {
	list := make([]sentToRelay, len(receipts))
	for i, r := range receipts {
		list[i] = sentToRelay{Relay: r.Relay, State: r.State.String(), Message: nip90client.Reason(r)}
	}
	return list
}

// endedAt returns what relays said to a request that ended at them.
func endedAt(out *nip90client.Outcome) (list []sentToRelay) {
	switch out.Ending { //nolint:exhaustive // the others did not end at the relays
	case nip90client.NotAccepted:
		return sentTo(out.Receipts)
	case nip90client.Unreadable:
		for _, r := range out.Receipts {
			list = append(list, sentToRelay{r.Relay, "closed", out.Closed[r.Relay]})
		}
	}
	return list
}

// answer shows what the provider says.
func (p *jobReporter) answer(x *nip90client.Entry) {
	switch {
	case p.json:
		p.object(x)
	case x.Type == nip90client.TypeResult:
		p.result(x)
	case p.draw && x.Progress != nil && x.Status == dvm.StatusProcessing && x.Retry == nil:
		p.progress(progressLine(x))
	default:
		p.line("%s", feedbackLine(x, p.zone))
	}
}

// result writes the result to standard output: as it is, unless that is a terminal,
// which could be told to do things by it.
func (p *jobReporter) result(x *nip90client.Entry) {
	if x.Status == dvm.StatusError {
		return // said at the end
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	text := x.Content
	if process.IsTerminal(p.io.Out) {
		text = strings.TrimSuffix(visibleLines(text), "\n") + "\n"
	}
	if _, err := p.io.Out.WriteString(text); err != nil {
		p.failed = fmt.Errorf("the result: %w", err)
	}
	if x.Amount != "" {
		p.warn("the provider asks for %s msat; nothing was paid", shortText(x.Amount))
	}
}

// object prints JSON.
func (p *jobReporter) object(v any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.printJSON(v); err != nil && p.failed == nil {
		p.failed = err
	}
}

// line writes a line of ours.
func (p *jobReporter) line(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	p.warn(format, args...)
}

// progress writes a line that the next one takes the place of.
func (p *jobReporter) progress(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !process.Foreground(p.io.Err) {
		return // the terminal is somebody else's now
	}
	if width := columns(p.io.Err); width > 0 {
		text = textfmt.ClipWithin(text, width-1, "…") // one that wraps can't be rewritten
	}
	p.shown = true
	fmt.Fprint(p.io.Err, clearLine+text)
}

func (p *jobReporter) erase() {
	if p.shown {
		p.shown = false
		fmt.Fprint(p.io.Err, clearLine)
	}
}

// done leaves the terminal tidy.
func (p *jobReporter) done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
}

// end says how it ended and returns the exit code. Told is why it was interrupted, if
// it was.
func (p *jobReporter) end(e *nostr.Event, out *nip90client.Outcome, told error) error {
	p.done()
	code, text := judge(out)
	exit, interrupted := errors.AsType[exitError](coded(told))
	if interrupted = interrupted && out.Ending == nip90client.Interrupted; interrupted {
		code = exit.Code
	}
	if p.json {
		p.object(jobEnd{"end", e.ID, out.Ending, code, text, endedAt(out)})
	}
	if p.failed != nil {
		return &codedError{p.failed, codeOwn}
	}
	switch {
	case interrupted:
		return exit
	case out.Ending == nip90client.Detached && !p.json:
		return p.say("%s", e.ID)
	case code == 0:
		return nil
	case p.json:
		return exitError{Code: code}
	}
	return &codedError{errors.New(text), code}
}

// judge returns the exit code of an end, and what there is to say.
func judge(out *nip90client.Outcome) (code int, text string) {
	switch out.Ending {
	case nip90client.Failed:
		return judgeFailure(out.Entry)
	case nip90client.Partial:
		return codeJobPartial, "the result is a part only"
	case nip90client.Cancelled:
		return codeJobCanceled, "the provider says: " + shortText(out.Entry.Message)
	case nip90client.NotAccepted:
		var list []string
		for _, r := range out.Receipts {
			list = append(list, "\n  "+visible(r.Relay+": "+nip90client.Describe(r)))
		}
		return codeNotAccepted, "no relay took the request" + strings.Join(list, "")
	case nip90client.Unreadable:
		var list []string
		for _, r := range endedAt(out) {
			list = append(list, "\n  "+visible(r.Relay+": "+r.Message))
		}
		return codeUnreadable, "no relay lets us read the answers; the provider may still be at it" + strings.Join(list, "")
	case nip90client.NoAnswer:
		return codeNoAnswer, "there was no result in time; the provider may still be at it"
	default: // done, detached, interrupted: nothing to add
		return 0, ""
	}
}

func judgeFailure(x *nip90client.Entry) (code int, text string) {
	if x.Type == nip90client.TypeResult && x.Status != dvm.StatusError {
		return codeJobFailed, `the result has the status "` + shortText(x.Status) + `", which is none that is known`
	}
	failure := x.Failure
	if failure == nil { // feedback, and no result came
		failure = &nip90client.Failure{Message: x.Message}
		if strings.HasPrefix(x.Message, dvm.CodeTimeout+":") {
			failure.Code = dvm.CodeTimeout
		}
	}
	code = codeJobFailed
	if failure.Code == dvm.CodeTimeout {
		code = codeJobTimedOut
	}
	return code, failureText(failure)
}
