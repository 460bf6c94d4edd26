package timeseries

import "time"

// Range is a period of time up to now that a chart covers.
type Range struct {
	Name     string
	Interval time.Duration
	Count    int // number of intervals
}

// Ranges has the ranges of all charts, the shortest first.
var Ranges = [...]Range{
	{"hour", time.Minute, 60},
	{"day", 15 * time.Minute, 96},
	{"two-weeks", 4 * time.Hour, 84},
}

// longest is the length of the longest range.
const longest = 14 * 24 * time.Hour

// Point has the counts of one interval, or of several.
type Point struct {
	Time      time.Time // when the interval began
	Started   uint64
	Succeeded uint64
	Failed    uint64 // runs that gave up
	Canceled  uint64
	Took      Percentiles // from the creation of runs to their end, of those that succeeded or failed
	Wait      Percentiles // from the creation of runs to the first attempt of a step or an operation
}

// The indexes of counts.
const (
	started = iota
	succeeded
	failed
	canceled
)

// interval has the counts of one interval.
type interval struct {
	index  int64 // number of the interval since 1970
	counts [4]uint32
	took   histogram
	wait   histogram
}

func (i *interval) add(o *interval) {
	for k, n := range o.counts {
		i.counts[k] = addUp(i.counts[k], n)
	}
	i.took.add(&o.took)
	i.wait.add(&o.wait)
}

func (i *interval) point(at time.Time) Point {
	return Point{
		Time: at, Started: uint64(i.counts[started]), Succeeded: uint64(i.counts[succeeded]), Failed: uint64(i.counts[failed]), Canceled: uint64(i.counts[canceled]),
		Took: i.took.percentiles(), Wait: i.wait.percentiles(),
	}
}

// addUp adds two counts. It stays at the largest number instead of overflowing.
func addUp(a, b uint32) uint32 {
	if sum := a + b; sum >= a {
		return sum
	}
	return ^uint32(0)
}

// series has the counts of a workflow: a ring of intervals for each of Ranges. An interval without
// events is nil, so that a workflow with few runs needs little memory.
type series struct {
	rings [len(Ranges)][]*interval
	last  time.Time // of the last event
}

// count calls change with the interval of each range that contains the time. It ignores a time that
// is not in the range, such as one in the future: the clock may have been wrong.
func (s *series) count(at, now time.Time, change func(*interval)) {
	for k := range Ranges {
		r := &Ranges[k]
		index, current := at.UnixNano()/int64(r.Interval), now.UnixNano()/int64(r.Interval)
		if index > current+1 || index <= current-int64(r.Count) {
			continue
		}
		if at.After(s.last) {
			s.last = at
		}
		change(s.at(k, index))
	}
}

// at returns the interval with this index of a range. It replaces one that is out of the range.
func (s *series) at(k int, index int64) *interval {
	if s.rings[k] == nil {
		s.rings[k] = make([]*interval, Ranges[k].Count)
	}
	slot := &s.rings[k][uint64(index)%uint64(len(s.rings[k]))]
	if *slot == nil || (*slot).index != index {
		*slot = &interval{index: index}
	}
	return *slot
}

// points returns the intervals of a range up to now, the oldest first, and their sum. The last one is
// not complete yet.
func (s *series) points(k int, now time.Time) (list []Point, total Point) {
	r := &Ranges[k]
	current := now.UnixNano() / int64(r.Interval)
	var sum interval
	first := current - int64(r.Count) + 1
	for index := first; index <= current; index++ {
		at, one := time.Unix(0, index*int64(r.Interval)).UTC(), new(interval)
		if ring := s.rings[k]; ring != nil {
			if i := ring[uint64(index)%uint64(len(ring))]; i != nil && i.index == index {
				one = i
			}
		}
		sum.add(one)
		list = append(list, one.point(at))
	}
	return list, sum.point(list[0].Time)
}
