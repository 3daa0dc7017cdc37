package meter

import (
	"fmt"
	"slices"
)

// WithoutCustom returns wasm without its custom sections and byte for byte as it was otherwise: what an engine may
// be handed to validate. Custom sections are never executed, but engines read some: a name section that claims
// more names than it has bytes can cost gigabytes. The sections are told apart as Decode does it; their content is not
// looked at. The caller owns the result. The error is always an *Error.
func WithoutCustom(wasm []byte) ([]byte, error) {
	r := &reader{b: wasm, step: StepWalk}
	head := r.take(8, "header")
	out := append(make([]byte, 0, len(wasm)), head...)
	for r.err == nil && r.left() > 0 {
		start := r.off
		id := r.byte("section id")
		r.take(r.u32("section length"), fmt.Sprintf("section %d", id))
		if id != secCustom && r.err == nil {
			out = appendPieces(out, wasm[start:r.off])
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	return slices.Clip(out), nil
}
