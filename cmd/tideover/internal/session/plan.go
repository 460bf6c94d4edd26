package session

import (
	"errors"
	"fmt"
	"slices"
)

// CommandPack returns the pack for a command, also for one that a shell or another
// program runs; generic if no assistant is known in it.
func CommandPack(argv []string) string {
	if _, assistant, _ := unwrap(argv); packs[assistant] != "" {
		return packs[assistant]
	}
	return PackOf(argv)
}

// PlanResume fills in how the session is resumed, if that is not given and its
// command is one of an assistant. If no way is known, NoResume says why. Piped
// says that something is piped into the command, which may be its prompt.
func (s *Spec) PlanResume(piped bool) {
	s.typed = slices.Clone(s.Start)
	if len(s.Start) == 0 || len(s.Resume) > 0 || s.Restart {
		return
	}
	w, assistant, understood := unwrap(s.Start)
	if assistant == "" {
		if PackOf(s.Start) != "generic" && len(s.Start) > 1 {
			s.NoResume = "how " + PackOf(s.Start) + " resumes a session is not known"
		}
		return
	}
	plan := assistants[assistant]
	switch {
	case !understood:
		s.NoResume = assistant + " is run by a command of which only a plain call is understood, as in sh -c 'claude -p x'"
		return
	case plan == nil && len(w.inner) > 1:
		s.NoResume = "how " + assistant + " resumes a session is not known"
		return
	case plan == nil:
		return
	}
	r, err := plan(w.inner, piped)
	switch {
	case errors.Is(err, errNoPrompt):
		return
	case err != nil:
		s.NoResume = fmt.Sprintf("of the command of %s %v", assistant, err)
		return
	}
	if r.id == "" && !mentions(r.start, "Session") && !s.readsID() {
		s.NoResume = fmt.Sprintf("the pack %s does not know where %s states the id of its session; detect by %s, or extend it", s.Pack, assistant, packs[assistant])
		return
	}
	s.Start, s.Resume, s.SessionID, s.stdinPrompt = w.wrap(r.start), w.wrap(r.resume), r.id, r.stdin
	if r.latest != nil {
		s.ResumeLatest = w.wrap(r.latest)
	}
}

// ReadsPrompt reports whether the prompt of the session is read from standard
// input. It is known after [Spec.PlanResume].
func (s *Spec) ReadsPrompt() bool { return s.stdinPrompt }

// RunsAgain reports whether the start command is run again instead of a resume
// command, because the command is no assistant's. It is known after
// [Spec.PlanResume].
func (s *Spec) RunsAgain() bool { return len(s.Resume) == 0 && s.NoResume == "" && !s.Restart }
