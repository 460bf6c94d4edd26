package logsample

// Len returns the number of keys that are kept.
func (s *Sampler[K]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.kept)
}
