package remote

import (
	"github.com/routerd/routerd/kvcache"
)

// found is the answer to one find.
type found struct {
	status    byte
	blockSize uint32 // the primary's, where the status is statusSize
}

// appendOverlap writes what a rank holds.
func appendOverlap(b []byte, o kvcache.Overlap, trusted bool) []byte {
	at, flags := len(b), byte(0)
	b = append(b, 0)
	if trusted {
		flags |= flagTrusted
	}
	for t, n := range []uint32{o.Device, o.Host, o.Disk, o.Shared} {
		if n > 0 {
			flags |= 2 << t
			b = order.AppendUint32(b, n)
		}
	}
	b[at] = flags
	return b
}

// overlap reads what appendOverlap writes of a prompt of so many blocks.
func (r *reader) overlap(blocks int) (o kvcache.Overlap, trusted bool) {
	flags := r.byte("a rank's flags")
	if flags&flagsUnknown != 0 {
		r.err = bad("a rank's flags are %#x, of which some mean nothing", flags)
	}
	sum := uint64(0)
	for t, n := range []*uint32{&o.Device, &o.Host, &o.Disk, &o.Shared} {
		if flags&(2<<t) == 0 {
			continue
		}
		*n = r.uint32("a rank's blocks")
		if *n == 0 && r.err == nil {
			r.err = bad("a rank holds 0 blocks on a tier that is flagged")
		}
		sum += uint64(*n)
	}
	if sum > uint64(blocks) && r.err == nil {
		r.err = bad("a rank holds %d blocks of %d", sum, blocks)
	}
	return o, flags&flagTrusted != 0
}

// splitFound cuts the answer to so many finds into theirs.
func splitFound(message []byte, finds int) ([][]byte, error) {
	r := reader{rest: message}
	n := r.head(kindFound, maxFinds, leastFound)
	if r.err == nil && n != finds {
		r.err = bad("%d answers to %d finds", n, finds)
	}
	out := make([][]byte, 0, n)
	for range n {
		out = append(out, r.take("an answer", r.number("bytes of an answer", len(r.rest), 1)))
	}
	return out, r.end()
}

// readFound reads one answer of splitFound, and hands what each of so many ranks holds of
// the prompt to each, in order. Where there is an error, some may have been handed.
func readFound(part []byte, blocks, ranks int, each func(i int, o kvcache.Overlap, trusted bool)) (found, error) {
	r := reader{rest: part}
	f := found{status: r.byte("the status")}
	switch f.status {
	case statusOK:
		for i := range ranks {
			o, trusted := r.overlap(blocks)
			if r.err != nil {
				break
			}
			each(i, o, trusted)
		}
	case statusNone:
	case statusSize:
		f.blockSize = r.uint32("the primary's block size")
	default:
		r.err = bad("status %d of a find", f.status)
	}
	return f, r.end()
}
