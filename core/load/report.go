package load

import "time"

// Report is what an engine says of one rank.
type Report struct {
	// At is when the report was made.
	At time.Time
	// Queued and Running are requests; -1 where the engine does not say.
	Queued, Running int64
	// KVUsed and KVTotal are blocks; -1 where the engine does not say. KVUsage is
	// the used part, 0 to 1; below 0 where the engine does not say.
	KVUsed, KVTotal int64
	KVUsage         float64
}

// Fresh tells whether the report is no older than maxAge at now. A report
// without a time is not.
func (r Report) Fresh(now time.Time, maxAge time.Duration) bool {
	return !r.At.IsZero() && now.Sub(r.At) <= maxAge
}

// UsedBlocks is the number of KV blocks in use, of a rank that has total ones (0
// where that is not known): what the engine says, if the report is fresh and
// says so, else the number that was projected.
func (r Report) UsedBlocks(projected float64, total int64, now time.Time, maxAge time.Duration) float64 {
	if !r.Fresh(now, maxAge) {
		return projected
	}
	if r.KVUsed >= 0 {
		return float64(r.KVUsed)
	}
	if all := r.total(total); all > 0 && r.KVUsage >= 0 {
		return r.KVUsage * float64(all)
	}
	return projected
}

// Usage is the part of the KV blocks that is used, of a rank that has total ones
// (0 where that is not known); ok is false where the engine does not say.
func (r Report) Usage(total int64) (used float64, ok bool) {
	if r.KVUsage >= 0 {
		return r.KVUsage, true
	}
	if all := r.total(total); all > 0 && r.KVUsed >= 0 {
		return float64(r.KVUsed) / float64(all), true
	}
	return 0, false
}

// total is the number of blocks there are: the engine's word before ours.
func (r Report) total(ours int64) int64 {
	if r.KVTotal > 0 {
		return r.KVTotal
	}
	return ours
}
