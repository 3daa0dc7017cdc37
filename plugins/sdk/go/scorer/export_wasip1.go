package scorer

import "unsafe"

//go:wasmexport rp_score
func rpScore(p unsafe.Pointer) int32 { return score(p) }
