package nip90

import "github.com/tideover/tideover/nostr"

// Relays returns how the relays are. There are none while nothing is offered.
func (s *Service) Relays() []nostr.RelayStatus {
	client := s.client()
	if client == nil {
		return nil
	}
	return client.Status()
}
