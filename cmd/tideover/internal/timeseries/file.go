package timeseries

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// version is the version of the file's format.
const version = 1

// maxFile limits the size of the uncompressed file.
const maxFile = 64 << 20

// storedFile is the content of the file: JSON, compressed with gzip, whose checksum shows whether the
// file is damaged.
type storedFile struct {
	Version int                     `json:"version"`
	Since   time.Time               `json:"since"`
	All     storedSeries            `json:"all"`
	Series  map[string]storedSeries `json:"series,omitempty"` // by workflow
}

// storedSeries has the intervals with events of each range, by the name of the range.
type storedSeries map[string][]storedInterval

type storedInterval struct {
	Index  int64     `json:"i"`
	Counts [4]uint32 `json:"n"`
	Took   []uint32  `json:"d,omitempty"` // alternates the index of a bucket and its count
	Wait   []uint32  `json:"w,omitempty"`
}

// stored returns the content of the file, without intervals that no chart shows any more. The caller
// holds s.mu.
func (s *Store) stored(now time.Time) *storedFile {
	f := &storedFile{Version: version, Since: s.since, All: s.all.stored(now), Series: map[string]storedSeries{}}
	for name, one := range s.byName {
		if stored := one.stored(now); len(stored) > 0 {
			f.Series[name] = stored
		}
	}
	return f
}

func (s *series) stored(now time.Time) storedSeries {
	out := storedSeries{}
	for k, ring := range s.rings {
		oldest := now.UnixNano()/int64(Ranges[k].Interval) - int64(len(ring))
		for _, i := range ring {
			if i != nil && i.index > oldest {
				out[Ranges[k].Name] = append(out[Ranges[k].Name], storedInterval{i.index, i.counts, i.took.pairs(), i.wait.pairs()})
			}
		}
	}
	return out
}

// pairs returns the index and the count of each bucket that is not empty.
func (h *histogram) pairs() (list []uint32) {
	for k, n := range h {
		if n > 0 {
			list = append(list, uint32(k), n)
		}
	}
	return list
}

func (f *storedFile) encode() ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if err := json.NewEncoder(w).Encode(f); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// decode sets the counts to those of the file.
func (s *Store) decode(data []byte) error {
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	switch {
	case err != nil:
		return err
	case len(text) > maxFile:
		return fmt.Errorf("it has more than %d bytes", maxFile)
	}
	var f storedFile
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	if f.Version != version {
		return fmt.Errorf("it has the version %d, want %d", f.Version, version)
	}
	if len(f.Series) > MaxWorkflows+1 {
		return fmt.Errorf("it has %d workflows, at most %d are possible", len(f.Series), MaxWorkflows+1)
	}
	s.since = f.Since
	if err := s.all.restore(f.All); err != nil {
		return err
	}
	for name, stored := range f.Series {
		s.byName[name] = new(series)
		if err := s.byName[name].restore(stored); err != nil {
			return err
		}
	}
	return nil
}

// restore sets the counts of an empty series.
func (s *series) restore(f storedSeries) error {
	for k, r := range Ranges {
		for _, i := range f[r.Name] {
			one := s.at(k, i.Index)
			one.counts = i.Counts
			if err := errors.Join(one.took.restore(i.Took), one.wait.restore(i.Wait)); err != nil {
				return err
			}
			if end := time.Unix(0, (i.Index+1)*int64(r.Interval)); end.After(s.last) {
				s.last = end
			}
		}
	}
	return nil
}

func (h *histogram) restore(pairs []uint32) error {
	if len(pairs)%2 != 0 {
		return errors.New("a histogram has an index without a count")
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] >= buckets {
			return fmt.Errorf("a histogram has the bucket %d, at most %d are possible", pairs[i], buckets)
		}
		h[pairs[i]] = pairs[i+1]
	}
	return nil
}
