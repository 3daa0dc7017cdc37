package remote

import "github.com/routerd/routerd/kvcache"

// SplitFound is splitFound, ReadRecorded readRecorded.
var (
	SplitFound   = splitFound
	ReadRecorded = readRecorded
)

// ReadFound is readFound; answered tells whether the ranks were handed.
func ReadFound(part []byte, blocks, ranks int, each func(i int, o kvcache.Overlap, trusted bool)) (answered bool, err error) {
	f, err := readFound(part, blocks, ranks, each)
	return f.status == statusOK, err
}
