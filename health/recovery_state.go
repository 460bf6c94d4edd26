package health

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// stateVersion is the version of the stored form. Increment it if the number of bins
// or their edges change.
const stateVersion = 1

// stateSize is the size of the binary form: the version and all numbers.
const stateSize = 1 + 8*(1+2*bins)

// storedHazard is the JSON form of a hazard.
type storedHazard struct {
	Version int       `json:"version"`
	Outages float64   `json:"outages"`
	Ended   []float64 `json:"ended"`
	Spent   []float64 `json:"spent"`
}

var errState = errors.New("recovery: stored state: numbers out of range: delete it and start without history")

// MarshalBinary returns the learned statistics, without the configuration: 1305
// bytes.
func (r *Recovery) MarshalBinary() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := append(make([]byte, 0, stateSize), stateVersion)
	for _, part := range r.hazard.parts() {
		var err error
		if b, err = binary.Append(b, binary.LittleEndian, part); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// parts returns pointers to everything that is stored, in the order of the
// binary form.
func (z *hazard) parts() [3]any { return [...]any{&z.outages, &z.ended, &z.spent} }

// UnmarshalBinary replaces the learned statistics by those of MarshalBinary. On
// an error nothing changes.
func (r *Recovery) UnmarshalBinary(data []byte) error {
	switch {
	case len(data) == 0:
		return errors.New("recovery: stored state: is empty")
	case data[0] != stateVersion:
		return fmt.Errorf("recovery: stored state: version %d, want %d", data[0], stateVersion)
	case len(data) != stateSize:
		return fmt.Errorf("recovery: stored state: %d bytes, want %d", len(data), stateSize)
	}
	var z hazard
	data = data[1:]
	for _, part := range z.parts() {
		n, err := binary.Decode(data, binary.LittleEndian, part)
		if err != nil {
			return fmt.Errorf("recovery: stored state: %w", err)
		}
		data = data[n:]
	}
	return r.restore(&z)
}

// MarshalJSON is [Recovery.MarshalBinary] as JSON.
func (r *Recovery) MarshalJSON() ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return json.Marshal(storedHazard{stateVersion, r.hazard.outages, r.hazard.ended[:], r.hazard.spent[:]})
}

// UnmarshalJSON replaces the learned statistics by those of MarshalJSON. On an
// error nothing changes.
func (r *Recovery) UnmarshalJSON(data []byte) error {
	var s storedHazard
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("recovery: stored state: %w", err)
	}
	switch {
	case s.Version != stateVersion:
		return fmt.Errorf("recovery: stored state: version %d, want %d", s.Version, stateVersion)
	case len(s.Ended) != bins || len(s.Spent) != bins:
		return fmt.Errorf("recovery: stored state: %d and %d bins, want %d", len(s.Ended), len(s.Spent), bins)
	}
	return r.restore(&hazard{s.Outages, [bins]float64(s.Ended), [bins]float64(s.Spent)})
}

// restore replaces the learned statistics by z, if z is valid.
func (r *Recovery) restore(z *hazard) error {
	if !z.valid() {
		return errState
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hazard = *z
	return nil
}
