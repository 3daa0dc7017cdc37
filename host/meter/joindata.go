package meter

// maxGap is the largest run of zeros that is written out to join two data segments.
const maxGap = 32

// dataSection writes the segments. The Go linker cuts its data at every run of zeros, 35,000 times in a small
// guest, and an engine evaluates and copies each at every instantiation; so neighbours are joined where that
// cannot be seen.
func (e *emitter) dataSection() *pieces {
	out := &pieces{}
	segments := joinData(e.m.data, e.m.hasCount)
	if len(segments) == 0 {
		return out
	}
	head := appendU32(nil, uint32(len(segments)))
	for _, s := range segments {
		head = append(head, byte(s[0].mode))
		if s[0].mode == modeActive {
			head = e.constant(head, s[0].offset)
		}
		out.add(appendU32(head, uint32(joinedBytes(s))))
		head = head[:0]
		for i := range s {
			if i > 0 {
				out.add(make([]byte, startOf(&s[i])-endOf(&s[i-1])))
			}
			out.add(s[i].bytes)
		}
	}
	return out
}

// joinData finds runs of active segments at constant ascending offsets with gaps of at most maxGap, each of which is
// written as one. The gap is filled with the zeros that a fresh memory holds there, which is right only above
// everything written before; an offset that is no constant ends all joining. With a data count section, instructions
// may name segments by number, and nothing is joined.
func joinData(in []dataSegment, numbered bool) [][]dataSegment {
	out := make([][]dataSegment, 0, len(in))
	joining := !numbered
	var top uint64 // the end of the highest segment so far
	for i := range in {
		s := &in[i]
		if joining = joining && s.mode == modeActive && s.offset.op == opI32Const; !joining {
			out = append(out, in[i:i+1])
			continue
		}
		start := startOf(s)
		if i > 0 && start >= top && start-top <= maxGap && endOf(&in[i-1]) == top {
			last := &out[len(out)-1]
			*last = in[i-len(*last) : i+1]
		} else {
			out = append(out, in[i:i+1])
		}
		top = max(top, endOf(s))
	}
	return out
}

// joinedBytes is the length of a run with its gaps.
func joinedBytes(run []dataSegment) int {
	last := &run[len(run)-1]
	if len(run) == 1 {
		return len(last.bytes)
	}
	return int(endOf(last) - startOf(&run[0]))
}

// startOf is the constant offset of an active segment, endOf where its bytes end.
func startOf(s *dataSegment) uint64 { return uint64(uint32(s.offset.lo)) }

func endOf(s *dataSegment) uint64 { return startOf(s) + uint64(len(s.bytes)) }
