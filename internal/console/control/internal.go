package control

import "strings"

// Parts of the names of workflows that tideover defines itself. The configuration rejects other
// workflows with such names.
const (
	SessionPrefix = "session."
	NotifyPrefix  = "notify."
	GiveUpSuffix  = ".on-give-up"
	jobPrefix     = "nip90."
	answers       = jobPrefix + "answer"
)

// Internal reports whether tideover starts the runs of a workflow itself: sessions, messages,
// answers to jobs, and follow-up runs of runs that gave up. Users can't start or repeat these
// runs, and lists contain them only on request.
func Internal(workflow string) bool {
	return workflow == answers || strings.HasPrefix(workflow, SessionPrefix) || strings.HasPrefix(workflow, NotifyPrefix) || strings.HasSuffix(workflow, GiveUpSuffix)
}

// Message reports whether a workflow sends messages. Its dead runs are messages that could not
// be sent.
func Message(workflow string) bool {
	return strings.HasPrefix(workflow, NotifyPrefix) && !strings.HasSuffix(workflow, GiveUpSuffix)
}

// InternalNames returns patterns that match the names of [Internal] workflows, for the Exclude of
// an [engine.Filter].
func InternalNames() []string {
	return []string{SessionPrefix + "*", NotifyPrefix + "*", "*" + GiveUpSuffix, answers}
}

// Pausable returns an error if users can neither pause nor resume the workflow, because it is
// [Internal].
func Pausable(workflow string) error {
	switch {
	case !Internal(workflow):
		return nil
	case strings.HasPrefix(workflow, SessionPrefix):
		return NewError(CodeState, workflow+" is a session", "use tideover sessions")
	}
	return NewError(CodeState, workflow+" can't be paused or resumed: tideover starts its runs itself", "")
}

// Startable returns an error if users can neither start nor repeat runs of the workflow: it is
// [Internal], or it is a NIP-90 job that customers start.
func Startable(workflow string) error {
	if !Internal(workflow) && !strings.HasPrefix(workflow, jobPrefix) {
		return nil
	}
	switch {
	case strings.HasSuffix(workflow, GiveUpSuffix):
		return NewError(CodeState, workflow+" is started when a run gives up", "retry that run instead")
	case strings.HasPrefix(workflow, SessionPrefix):
		return NewError(CodeState, workflow+" is a session; use tideover sessions", "")
	case strings.HasPrefix(workflow, jobPrefix):
		return NewError(CodeState, workflow+" is started only by a request over Nostr", "use tideover nip90 request")
	}
	return NewError(CodeState, workflow+" sends messages", "use tideover notify")
}
