package meter

// maxGap is the largest run of zeros that is written out to join two data segments.
const maxGap = 32

// dataSection writes the segments. The Go linker cuts its data at every run of zeros, 35,000 times in a small
// guest, and an engine evaluates and copies each at every instantiation; so neighbours are joined where that
// cannot be seen.
func (e *emitter) dataSection() []byte {
	segments := joinData(e.m.data, e.m.hasCount)
	if len(segments) == 0 {
		return nil
	}
	out := appendU32(nil, uint32(len(segments)))
	for _, s := range segments {
		out = append(out, byte(s.mode))
		if s.mode == modeActive {
			out = e.constant(out, s.offset)
		}
		out = appendU32(out, uint32(len(s.bytes)))
		out = append(out, s.bytes...)
	}
	return out
}

// joinData joins runs of active segments at constant ascending offsets with gaps of at most maxGap. The gap is
// filled with the zeros that a fresh memory holds there, which is right only above everything written before; an
// offset that is no constant ends all joining. With a data count section, instructions may name segments by
// number, and nothing is joined.
func joinData(in []dataSegment, numbered bool) []dataSegment {
	if numbered {
		return in
	}
	var out []dataSegment
	var top uint64 // the end of the highest segment so far
	owned := false // the last segment's bytes are ours to append to
	for i, s := range in {
		if s.mode != modeActive || s.offset.op != opI32Const {
			return append(out, in[i:]...)
		}
		start := uint64(uint32(s.offset.lo))
		if i > 0 && start >= top && start-top <= maxGap && endsAt(&out[len(out)-1]) == top {
			last := &out[len(out)-1]
			if !owned {
				last.bytes, owned = append([]byte(nil), last.bytes...), true
			}
			last.bytes = append(last.bytes, make([]byte, start-top)...)
			last.bytes = append(last.bytes, s.bytes...)
		} else {
			out, owned = append(out, s), false
		}
		top = max(top, start+uint64(len(s.bytes)))
	}
	return out
}

func endsAt(s *dataSegment) uint64 {
	return uint64(uint32(s.offset.lo)) + uint64(len(s.bytes))
}
