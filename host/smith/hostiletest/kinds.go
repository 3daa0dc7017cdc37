package hostiletest

import (
	"fmt"
	"math"
	"math/rand/v2"

	asm "github.com/routerd/routerd/host/wasmtest"
	"github.com/routerd/routerd/plugins/abi"
)

// kindFamilies are of other kinds than scorers: what they give wrong is a mask,
// a pick, or all of it.
func kindFamilies() []family {
	return []family{
		{"filter", filters},
		{"picker", pickers},
		{"whole policy", wholePolicies},
		{"many kinds in one module", manyKinds},
	}
}

// Reasons of faults of these kinds.
const (
	byMask      = "mask"
	byPick      = "pick"
	byFlags     = "out_flags"
	byUnwritten = "unwritten"
)

// wrongCall is code that runs for TriggerSeed before a good call, with all the
// ways in which that may end. Locals behind the frame are those of a column's
// walk.
type wrongCall struct {
	name string
	code asm.Code
	ends []string
}

// before puts it before good code.
func (w wrongCall) before(good asm.Code) asm.Code {
	return asm.Cat(
		asm.Get(0), asm.LoadI64(abi.OffSeed), asm.I64(TriggerSeed), asm.Op(0x51), // i64.eq
		asm.If(w.code),
		good,
	)
}

func (w wrongCall) specimen(kind abi.Kind, g asm.Guest) Specimen {
	g.Kinds = []string{string(kind)}
	s := mustLoad(w.name, g.Bytes(), w.ends...)
	s.Kind = kind
	return s
}

// give returns from the call with a code.
func give(code int32) asm.Code { return asm.Cat(asm.I32(code), asm.Op(asm.Return)) }

// pickAndGive picks a row and returns.
func pickAndGive(row ...asm.Code) asm.Code {
	return asm.Cat(asm.PickRow(row...), asm.Op(asm.Return))
}

// fillFrom fills memory from a block of the frame on: n bytes pushed by code.
func fillFrom(block uint64, b int32, n ...asm.Code) asm.Code {
	return asm.Cat(asm.Get(0), asm.Get(0), asm.Load32(block), asm.Op(asm.I32Add), asm.I32(b), asm.Cat(n...), asm.Op(0xfc, 11, 0))
}

// rows pushes how many rows there are.
func rows() asm.Code { return asm.Cat(asm.Get(0), asm.Load32(abi.OffRows)) }

func setOutFlags(flags int32) asm.Code {
	return asm.Cat(asm.Get(0), asm.I32(flags), asm.Store32(abi.OffOutFlags))
}

// anyKindWrong are the ways that a call of every kind has.
func anyKindWrong(rnd *rand.Rand) []wrongCall {
	return []wrongCall{
		{"no code", give(2 + rnd.Int32N(math.MaxInt32-1)), []string{"bad_code"}},
		{"an error", give(-1 - rnd.Int32N(math.MaxInt32)), []string{"guest_error"}},
		{"abstains", give(1), []string{byResult}},
		{"unknown out-flags", setOutFlags(2 << rnd.IntN(30)), []string{byFlags}},
		{"trap", asm.Op(asm.Unreachable), []string{"unreachable"}},
		{"endless", asm.Loop(asm.Br(0)), []string{byFuel}},
		{"outside", asm.Cat(asm.I32(-8), asm.I64(rnd.Int64()), asm.StoreI64(0)), []string{byBounds}},
	}
}

// maskWrong are the ways that a mask has. Row 0 is there and in in every call.
func maskWrong(rnd *rand.Rand) []wrongCall {
	b := int32(between(rnd, 2, 255))
	row := int32(between(rnd, 1, 2000)) // may be out, or behind the last one
	return []wrongCall{
		{named("mask byte", int(b)), asm.SetMask(0, b), []string{byMask}},
		{fmt.Sprintf("mask byte %d of row %d", b, row), asm.SetMask(row, b), []string{byMask, byResult}},
		{named("all mask bytes", int(b)), fillFrom(abi.OffMask, b, rows()), []string{byMask}},
		{"the stride's tail", asm.Cat(
			asm.Get(0), asm.Get(0), asm.Load32(abi.OffMask), asm.Op(asm.I32Add), rows(), asm.Op(asm.I32Add), asm.I32(b),
			asm.Get(0), asm.Load32(abi.OffStride), rows(), asm.Op(asm.I32Sub), asm.Op(0xfc, 11, 0)), []string{byResult}},
	}
}

func filters(rnd *rand.Rand, _ [][]byte) Specimen {
	all := append(maskWrong(rnd), anyKindWrong(rnd)...)
	all = append(all,
		wrongCall{"drops all", fillFrom(abi.OffMask, 0, rows()), []string{byResult}},
		wrongCall{"lets all in again", fillFrom(abi.OffMask, 1, rows()), []string{byResult}},
		wrongCall{"scores and picks", asm.Cat(fillFrom(abi.OffScores, 0xff, rows()), asm.PickRow(asm.I32(-2)), asm.Op(asm.Drop)), []string{byResult}},
		wrongCall{"asks for the host's draw", setOutFlags(int32(abi.OutTieBreak)), []string{byResult, byFlags}},
	)
	w := all[rnd.IntN(len(all))]
	return w.specimen(abi.KindFilter, asm.Guest{Filter: w.before(asm.I32(0))})
}

func pickers(rnd *rand.Rand, _ [][]byte) Specimen {
	beyond := rnd.Int32N(1000)
	all := append(anyKindWrong(rnd),
		wrongCall{named("beyond the last row by", int(beyond)), pickAndGive(rows(), asm.I32(beyond), asm.Op(asm.I32Add)), []string{byPick}},
		wrongCall{"a row far out", pickAndGive(asm.I32(-2 - rnd.Int32N(1<<30))), []string{byPick}},
		wrongCall{"none", give(0), []string{byPick}},
		wrongCall{"none, in so many words", pickAndGive(asm.I32(-1)), []string{byPick}},
		wrongCall{"the last row", pickAndGive(rows(), asm.I32(1), asm.Op(asm.I32Sub)), []string{byResult}},
		wrongCall{"the host's draw and a row far out", asm.Cat(setOutFlags(int32(abi.OutTieBreak)), pickAndGive(asm.I32(-2))), []string{byResult}},
		wrongCall{"a mask of its own", asm.Cat(fillFrom(abi.OffMask, 0, rows()), pickAndGive(asm.I32(0))), []string{byResult}},
		wrongCall{"scores", asm.Cat(fillFrom(abi.OffScores, 0xff, rows()), pickAndGive(asm.I32(0))), []string{byResult}},
	)
	w := all[rnd.IntN(len(all))]
	return w.specimen(abi.KindPicker, asm.Guest{Pick: w.before(asm.FirstKept())})
}

// wholePolicies score, mask and pick; what is wrong comes on top of a good
// decision, so that one thing at a time is.
func wholePolicies(rnd *rand.Rand, _ [][]byte) Specimen {
	scored := asm.Cat(asm.Column(0, asm.Op(asm.F64Neg)), asm.Op(asm.Drop))
	decided := asm.Cat(scored, asm.PickRow(asm.I32(0)), asm.Op(asm.Drop))
	over := func(name string, code asm.Code, ends ...string) wrongCall {
		return wrongCall{name, asm.Cat(decided, code, give(0)), ends}
	}
	all := anyKindWrong(rnd)
	all[3] = over("unknown out-flags", setOutFlags(2<<rnd.IntN(30)), byFlags)
	for _, w := range maskWrong(rnd) {
		all = append(all, over(w.name, w.code, w.ends...))
	}
	pick := func(row ...asm.Code) asm.Code { return asm.Cat(asm.PickRow(row...), asm.Op(asm.Drop)) }
	all = append(all,
		wrongCall{"picks and no more", pickAndGive(asm.I32(0)), []string{byUnwritten}},
		wrongCall{"scores and no more", asm.Cat(scored, give(0)), []string{byPick}},
		over("picks what it dropped", asm.SetMask(0, 0), byPick),
		over("picks as many as there are", pick(rows()), byPick),
		over("drops all", fillFrom(abi.OffMask, 0, rows()), byPick),
		over("drops all and asks for the host's draw", asm.Cat(fillFrom(abi.OffMask, 0, rows()), setOutFlags(int32(abi.OutTieBreak))), byPick),
		over("no score is finite", fillFrom(abi.OffScores, 0xff, rows(), asm.I32(8), asm.Op(0x6c)), "nan"),
		over("a score out of its range", asm.Cat(asm.Get(0), asm.Get(0), asm.Load32(abi.OffScores), asm.Op(asm.I32Add), asm.F64(1.5), asm.StoreF64(0)), "range"),
		over("wrong in all ways", asm.Cat(asm.SetMask(0, 9), fillFrom(abi.OffScores, 0xff, rows()), pick(rows())), byMask),
	)
	w := all[rnd.IntN(len(all))]
	return w.specimen(abi.KindPolicy, asm.Guest{
		Whole: w.before(asm.Cat(decided, asm.I32(0))), Extra: `,"score_range":{"min":-1e300,"max":0}`,
	})
}

// manyKinds are of several kinds at once: what goes wrong in one export must do
// so in the same way as if it were alone. All but one are good.
func manyKinds(rnd *rand.Rand, _ [][]byte) Specimen {
	kind := oneOf(rnd, abi.KindScorer, abi.KindFilter, abi.KindLoraScorer, abi.KindPicker)
	all := anyKindWrong(rnd)
	w := all[rnd.IntN(len(all))]
	g := asm.Guest{ScoreTypes: asm.ColumnTypes, Score: asm.Column(0, asm.Op(asm.F64Neg))}
	switch kind {
	case abi.KindFilter:
		w = oneOf(rnd, append(maskWrong(rnd), w)...)
		g.Filter = w.before(asm.I32(0))
	case abi.KindPicker:
		w = oneOf(rnd, w, wrongCall{"picks as many as there are", pickAndGive(rows()), []string{byPick}})
		g.Pick = w.before(asm.FirstKept())
	case abi.KindLoraScorer:
		w = oneOf(rnd, w, wrongCall{"writes none", give(0), []string{byUnwritten}})
		g.Lora = w.before(g.Score)
	default:
		w = oneOf(rnd, w, wrongCall{"writes a mask and picks, no score", asm.Cat(fillFrom(abi.OffMask, 0xff, rows()), pickAndGive(rows())), []string{byUnwritten}})
		g.Score = w.before(g.Score)
	}
	s := w.specimen(kind, g)
	g.Kinds = []string{"scorer", "filter", "lora-scorer", "picker", "policy"}
	s.Bytes, s.Name = g.Bytes(), string(kind)+": "+w.name
	return s
}
