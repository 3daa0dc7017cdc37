package meter

// RoundTrip decodes one expression, encodes it, decodes that and encodes again; both encodings are returned
// with the number of instructions. For tests of the pair of coders alone.
func RoundTrip(code []byte) (first, second []byte, n int, err error) {
	once := func(code []byte) (out []byte, n int, err error) {
		r := &reader{b: code, step: StepBodies}
		lim := DefaultLimits()
		var in instr
		for r.err == nil && r.left() > 0 {
			r.instr(&in, &lim)
			if r.err != nil {
				return nil, n, r.err
			}
			out = appendInstr(out, &in)
			n++
		}
		return out, n, nil
	}
	if first, n, err = once(code); err != nil {
		return nil, nil, n, err
	}
	second, _, err = once(first)
	return first, second, n, err
}
