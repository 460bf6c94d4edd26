package jetstream

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
	"github.com/tideover/tideover/engine/journal"
	"github.com/tideover/tideover/retry"
)

// The conditions that this package distinguishes in errors of the servers and of the
// connection.
var (
	errNotConnected = errors.New("not connected to NATS")
	errNoQuorum     = errors.New("no quorum")
	errNoMessage    = errors.New("no such message")
	errConflict     = errors.New("changed by another process")
	errGone         = errors.New("the stream is gone")
	errInProcess    = errors.New("another change is under way")
	errChanged      = errors.New("the record has changed meanwhile") // the writer reads the record again and decides again
	errClosed       = errors.New("the log is closed")
	errExpelled     = errors.New("the other members have taken this one for dead; it joins again")
)

// ErrReplaced means that the cluster that a process has joined is gone, and that another
// one was created under its name.
var ErrReplaced = errors.New("the cluster is not the one that this process has joined")

// ErrNoCluster means that there is no cluster to read, or that it was never completely created.
var ErrNoCluster = errors.New("there is no such cluster")

// The reasons why a request to another process has no answer.
var (
	errBusy       = errors.New("the process has too many open requests")
	errUnanswered = errors.New("the process that accepted the request will not answer it any more; the request may have been carried out")
	errCutOff     = errors.New("the connection to NATS was lost before the answer came; the request may have been carried out")
)

// Codes of the server's errors that the client has no names for.
const (
	codeAccountFull     natsjs.ErrorCode = 10002
	codeNoPeers         natsjs.ErrorCode = 10005
	codeUnavailable     natsjs.ErrorCode = 10008
	codeNotLeader       natsjs.ErrorCode = 10009
	codeNoResources     natsjs.ErrorCode = 10023
	codeStorageFull     natsjs.ErrorCode = 10047
	codeNoReplicas      natsjs.ErrorCode = 10074
	codeStoreFailed     natsjs.ErrorCode = 10077
	codeOffline         natsjs.ErrorCode = 10118
	codeSameIDInProcess natsjs.ErrorCode = 10158
	codeOfflineReason   natsjs.ErrorCode = 10194
)

// errorKinds has the errors that codes of the server mean.
var errorKinds = map[natsjs.ErrorCode]error{
	natsjs.JSErrCodeMessageNotFound:                 errNoMessage,
	natsjs.JSErrCodeStreamWrongLastSequence:         errConflict,
	natsjs.JSErrCodeStreamWrongLastSequenceConstant: errInProcess,
	natsjs.JSErrCodeStreamNotFound:                  errGone,

	codeUnavailable: errNoQuorum, codeNotLeader: errNoQuorum, codeOffline: errNoQuorum, codeOfflineReason: errNoQuorum,
	codeSameIDInProcess: errNoQuorum, // an earlier attempt is not confirmed yet

	codeAccountFull: journal.ErrFull, codeNoResources: journal.ErrFull, codeStorageFull: journal.ErrFull,
}

// serverError makes an error of the server match the error of this package or of package
// journal that means the same.
func serverError(stream string, err *natsjs.APIError) error {
	kind := errorKinds[err.ErrorCode]
	if err.ErrorCode == codeStoreFailed && err.Description == "maximum bytes exceeded" {
		kind = journal.ErrFull
	}
	switch {
	case kind == nil:
		return fmt.Errorf("stream %s: %w", stream, err)
	case err.ErrorCode == codeStoreFailed && errors.Is(kind, journal.ErrFull):
		return fmt.Errorf("%w: stream %s: %w; raise its limit: %s", kind, stream, err, editLimit(stream))
	case errors.Is(kind, journal.ErrFull):
		return fmt.Errorf("%w: stream %s: %w; raise the limit of the account, or give the servers more room (max_file)", kind, stream, err)
	default:
		return fmt.Errorf("%w: stream %s: %w", kind, stream, err)
	}
}

// editLimit returns the command that changes the limit of a stream: the configuration
// has no effect on streams that exist.
func editLimit(stream string) string {
	return fmt.Sprintf("nats stream edit %s --max-bytes SIZE", stream)
}

// startTime is how long a stream may seem to be gone before it counts as deleted: a
// server that starts does not know all streams at once.
const startTime = 2 * time.Second

// deletedError means that a stream of the cluster does not exist any more.
type deletedError struct {
	name  string
	since time.Time // when the stream was first found to be gone
	err   error
}

func (e *deletedError) Error() string {
	return fmt.Sprintf("%v: stream %s was deleted; restore it from a backup (nats stream restore): it is never created again, "+
		"because that would hide the loss", journal.ErrDamaged, e.name)
}

func (e *deletedError) Unwrap() []error { return []error{journal.ErrDamaged, e.err} }

func (e *deletedError) mayPass() bool { return time.Since(e.since) < startTime }

// final are the errors after which a retry is useless.
var final = []error{
	journal.ErrStale, journal.ErrLocked, journal.ErrFull, journal.ErrDamaged, journal.ErrNewer,
	journal.ErrTooLarge, journal.ErrNoBlob, journal.ErrNobody, errNoMessage, errConflict, errExpelled, errClosed,
	errUnanswered, errCutOff, nats.ErrMaxPayload, ErrReplaced, ErrNoCluster,
}

func outcome(err error) retry.Outcome {
	if gone, ok := errors.AsType[*deletedError](err); ok && gone.mayPass() {
		return retry.Outcome{}
	}
	if isAny(err, final...) {
		return retry.Outcome{Class: retry.ClassPermanent}
	}
	return retry.OutcomeOf(err)
}

func isAny(err error, list ...error) bool {
	return slices.ContainsFunc(list, func(target error) bool { return errors.Is(err, target) })
}

// plain returns the last error of an operation that a retry runner gave up because that
// error was final. It returns other errors unchanged.
func plain(err error) error {
	if e, ok := errors.AsType[*retry.Error](err); ok && e.Reason == retry.StopPermanent && e.Last != nil {
		return e.Last
	}
	return err
}

// How this package retries. Everything that is retried may safely be repeated.
var (
	// opens waits for the servers when a log is opened.
	opens = runner("open", "exponential(50ms..2s) jitter=full attempts=unlimited attempt-timeout=10s total-timeout=1m")

	// appends gives up early, so that the caller learns of the problem: after a server's
	// death the election of a leader may take longer. The caller repeats the append.
	appends = runner("append", "exponential(20ms..500ms) jitter=full attempts=unlimited attempt-timeout=2500ms total-timeout=5s")

	// asks is for requests to a leader that are not urgent.
	asks = runner("ask", "exponential(20ms..1s) jitter=full attempts=unlimited attempt-timeout=5s total-timeout=15s")

	// farewells is for the last requests before the log is closed.
	farewells = runner("farewell", "exponential(20ms..500ms) jitter=full attempts=unlimited attempt-timeout=2s total-timeout=3s")

	// joins continues for as long as the log is open.
	joins = runner("join", "exponential(50ms..1s) jitter=full attempts=unlimited attempt-timeout=3s")

	// refreshes reads the bucket again while the replica that answers is behind.
	refreshes = runner("look", "exponential(5ms..200ms) jitter=full attempts=unlimited")

	// calls repeats requests that were rejected before they were handled. No other
	// request may be repeated.
	calls = retry.Must("exponential(5ms..250ms) jitter=full attempts=unlimited", retry.WithName("call"),
		retry.WithClassifier(func(err error) retry.Outcome {
			if errors.Is(err, errBusy) {
				return retry.Outcome{}
			}
			return retry.Outcome{Class: retry.ClassPermanent}
		}))

	// reconnects has the delays between attempts to connect when no server answers.
	reconnects = retry.Must("exponential(50ms..1s) jitter=full attempts=unlimited").Policy()
)

func runner(name, policy string) *retry.Runner {
	return retry.Must(policy, retry.WithName(name), retry.WithClassifier(outcome))
}

// atOnce is how many calls inParallel makes at the same time.
const atOnce = 8

// inParallel calls f for all numbers below count, atOnce of them at a time.
func inParallel(count int, f func(i int)) {
	var group sync.WaitGroup
	places := make(chan struct{}, atOnce)
	for i := range count {
		places <- struct{}{}
		group.Go(func() {
			defer func() { <-places }()
			f(i)
		})
	}
	group.Wait()
}
