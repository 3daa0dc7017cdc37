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
