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

// jobReporter prints the progress of a request to standard error and the result to standard output.
// With --json it prints everything to standard output.
type jobReporter struct {
	*resultPrinter
	draw bool // show progress in place

	mu     sync.Mutex
	shown  bool  // a progress line is on the screen
	failed error // standard output could not be written
}

// sentRequest is the JSON line that is printed after the request was published.
type sentRequest struct {
	Type     string        `json:"type"` // always "sent"
	At       time.Time     `json:"at"`
	Request  string        `json:"request"`
	Kind     int           `json:"kind"`
	Customer string        `json:"customer"`
	Provider string        `json:"provider"`
	Relays   []sentToRelay `json:"relays"`
}

type sentToRelay struct {
	Relay   string `json:"relay"`
	State   string `json:"state"` // acknowledged, pending, refused, dropped; closed if the relay does not send answers
	Message string `json:"message,omitempty"`
}

// jobEnd is the last JSON line: how the request ended.
type jobEnd struct {
	Type    string             `json:"type"` // always "end"
	Request string             `json:"request"`
	Ending  nip90client.Ending `json:"ending"`
	Code    int                `json:"code"`
	Message string             `json:"message,omitempty"`
	Relays  []sentToRelay      `json:"relays,omitempty"` // only if the ending is not-accepted or unreadable
}

// printSent prints which relays have accepted the request.
func (p *jobReporter) printSent(e *nostr.Event, receipts []nostr.Receipt) {
	if p.json {
		p.printObject(sentRequest{
			Type: "sent", At: time.Unix(e.CreatedAt, 0).UTC(), Request: e.ID, Kind: e.Kind,
			Customer: nostr.Npub(e.PubKey), Provider: nostr.Npub(e.Tags.Find("p").Value()), Relays: relayStates(receipts),
		})
		return
	}
	untaken := nip90client.Untaken(receipts)
	p.printNotice("request %s accepted by %d of %s", e.ID[:shownID], len(receipts)-len(untaken), textfmt.Plural(len(receipts), "relay"))
	for _, r := range untaken {
		p.printNotice("not accepted by %s: %s", r.Relay, nip90client.Describe(r))
	}
}

// relayStates converts receipts to their JSON form.
func relayStates(receipts []nostr.Receipt) []sentToRelay {
	list := make([]sentToRelay, len(receipts))
	for i, r := range receipts {
		list[i] = sentToRelay{Relay: r.Relay, State: r.State.String(), Message: nip90client.Reason(r)}
	}
	return list
}

// relayErrors returns the replies of the relays if they are the reason why the request failed; else
// nil.
func relayErrors(out *nip90client.Outcome) (list []sentToRelay) {
	switch out.Ending { //nolint:exhaustive // in the other cases relays are not the reason
	case nip90client.NotAccepted:
		return relayStates(out.Receipts)
	case nip90client.Unreadable:
		for _, r := range out.Receipts {
			list = append(list, sentToRelay{r.Relay, "closed", out.Closed[r.Relay]})
		}
	}
	return list
}

// printAnswer prints feedback or a result of the provider.
func (p *jobReporter) printAnswer(x *nip90client.Entry) {
	switch {
	case p.json:
		p.printObject(x)
	case x.Type == nip90client.TypeResult:
		p.printResult(x)
	case p.draw && x.Progress != nil && x.Status == dvm.StatusProcessing && x.Retry == nil:
		p.showProgress(progressLine(x))
	default:
		p.printNotice("%s", feedbackLine(x, time.Local))
	}
}

// printResult writes the result to standard output: unchanged, except on a terminal, where control
// characters are made visible.
func (p *jobReporter) printResult(x *nip90client.Entry) {
	if x.Status == dvm.StatusError {
		return // printEnd prints the failure
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	text := x.Content
	if process.IsTerminal(p.io.Out) {
		text = strings.TrimSuffix(visibleLines(text), "\n") + "\n"
	}
	if _, err := p.io.Out.WriteString(text); err != nil {
		p.failed = fmt.Errorf("writing the result: %w", err)
	}
	if x.Amount != "" {
		p.warn("the provider asks for %s msat; nothing was paid", shortText(x.Amount))
	}
}

// printObject prints v as a line of JSON. It records the first error in p.failed.
func (p *jobReporter) printObject(v any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.printJSON(v); err != nil && p.failed == nil {
		p.failed = err
	}
}

// printNotice prints a line to standard error.
func (p *jobReporter) printNotice(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.erase()
	p.warn(format, args...)
}

// showProgress prints a line that the next output replaces.
func (p *jobReporter) showProgress(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !process.Foreground(p.io.Err) {
		return // this process is in the background of the terminal
	}
	if width, _ := terminalSize(p.io.Err); width > 0 {
		text = textfmt.ClipWithin(text, width-1, "…") // a line that wraps can't be redrawn
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

// printEnd prints how the request ended and returns the exit code as an error. cause is why the
// context of the request ended, or nil if it did not.
func (p *jobReporter) printEnd(e *nostr.Event, out *nip90client.Outcome, cause error) error {
	p.mu.Lock()
	p.erase()
	p.mu.Unlock()
	code, text := describeEnding(out)
	exit, interrupted := errors.AsType[exitError](coded(cause))
	if interrupted = interrupted && out.Ending == nip90client.Interrupted; interrupted {
		code = exit.Code
	}
	if p.json {
		p.printObject(jobEnd{"end", e.ID, out.Ending, code, text, relayErrors(out)})
	}
	if p.failed != nil {
		return &codedError{p.failed, CodeOwn}
	}
	switch {
	case interrupted:
		return exit
	case out.Ending == nip90client.Detached && !p.json:
		return p.printLine("%s", e.ID)
	case code == 0:
		return nil
	case p.json:
		return exitError{Code: code}
	}
	return &codedError{errors.New(text), code}
}

// describeEnding returns the exit code and the message for the end of a request.
func describeEnding(out *nip90client.Outcome) (code int, text string) {
	switch out.Ending {
	case nip90client.Failed:
		return describeFailure(out.Entry)
	case nip90client.Partial:
		return codePartial, "the result is only partial"
	case nip90client.Cancelled:
		return codeCanceled, "canceled by the provider: " + shortText(out.Entry.Message)
	case nip90client.NotAccepted:
		text = "no relay accepted the request"
		for _, r := range out.Receipts {
			text += "\n  " + visible(r.Relay+": "+nip90client.Describe(r))
		}
		return CodeOwn, text
	case nip90client.Unreadable:
		text = "no relay delivers the answers; the provider may still be working"
		for _, r := range relayErrors(out) {
			text += "\n  " + visible(r.Relay+": "+r.Message)
		}
		return codeUnreadable, text
	case nip90client.NoAnswer:
		return codeNoAnswer, "no result within --wait; the provider may still be working"
	default: // done, detached, interrupted: nothing to add
		return 0, ""
	}
}

// describeFailure returns the exit code and the message for a request that failed.
func describeFailure(x *nip90client.Entry) (code int, text string) {
	if x.Type == nip90client.TypeResult && x.Status != dvm.StatusError {
		return CodeFailed, `the result has the unknown status "` + shortText(x.Status) + `"`
	}
	failure := x.Failure
	if failure == nil { // the provider sent an error as feedback, but no result
		failure = &nip90client.Failure{Message: x.Message}
		if strings.HasPrefix(x.Message, dvm.CodeTimeout+":") {
			failure.Code = dvm.CodeTimeout
		}
	}
	code = CodeFailed
	if failure.Code == dvm.CodeTimeout {
		code = codeTimeout
	}
	return code, failureText(failure)
}
