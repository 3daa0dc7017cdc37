package scrape

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
)

const (
	maxCount = 1 << 40 // requests, blocks and tokens; above is absurd
	maxPage  = 1 << 20 // tokens of a block
	maxLine  = 64 << 10
)

// prefixes are how the names that matter begin. Most lines of an engine's metrics
// are of the process and of Python, and end here.
var prefixes = [...]string{"vllm:", "sglang:", "trtllm_"}

// reading is what the metrics of one worker say.
type reading struct {
	first   uint32 // rank of the first of ranks
	ranks   []values
	page    float64 // tokens of a block; below 0 is unknown
	lora    loraSample
	refused uint64 // values that are no number, negative or absurd
	strange uint64 // samples of ranks that the worker has not

	// A worker of one rank may call it by another number, if that is the only one.
	loose      values
	looseRank  uint32
	looseRanks int // how many others: 0, 1 or 2 for more
	exact      bool

	// vLLM tells the blocks of all ranks of a server together, once for each rank.
	serverBlocks float64
	tellers      int
}

func newReading(first uint32, ranks int) *reading {
	r := &reading{first: first, ranks: make([]values, ranks), page: -1, loose: nothing(), lora: loraSample{at: -1}}
	for i := range r.ranks {
		r.ranks[i] = nothing()
	}
	return r
}

// metricsIn reads metrics line by line up to the end. Lines of other names cost a
// look at their first bytes. A last line without its end may be cut off and is left
// out; one above maxLine is left out too.
func metricsIn(lines *bufio.Reader, into *reading) error {
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case err == nil:
			if wanted(line) {
				into.line(line[:len(line)-1])
			}
		case errors.Is(err, bufio.ErrBufferFull):
			if wanted(line) {
				into.refused++
			}
			if err := skipLine(lines); err != nil {
				return ended(err)
			}
		default:
			return ended(err)
		}
	}
}

func ended(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("read metrics: %w", err)
}

func skipLine(lines *bufio.Reader) error {
	for {
		if _, err := lines.ReadSlice('\n'); !errors.Is(err, bufio.ErrBufferFull) {
			return err
		}
	}
}

// wanted tells whether the line may be a sample that matters.
func wanted(line []byte) bool {
	for _, p := range prefixes {
		if len(line) > len(p) && line[0] == p[0] && string(line[:len(p)]) == p {
			return true
		}
	}
	return false
}

// line reads one sample: name{label="value",…} number [time].
func (r *reading) line(line []byte) {
	end := 0
	for end < len(line) && line[end] != '{' && line[end] != ' ' && line[end] != '\t' {
		end++
	}
	if end == len(line) {
		return
	}
	f := fieldOf(line[:end])
	if f == unwanted {
		return
	}
	l, rest, ok := labelsIn(line[end:])
	if !ok {
		r.refused++
		return
	}
	if i := bytes.IndexAny(rest, " \t\r"); i >= 0 {
		rest = rest[:i]
	}
	v, err := strconv.ParseFloat(string(rest), 64)
	if err != nil {
		r.refused++
		return
	}
	r.sample(f, l, v)
}

func (r *reading) sample(f field, l labels, v float64) {
	switch f {
	case loraInfo:
		r.lora.take(l, v)
		return
	case configInfo: // its numbers are in labels
		r.pageOf(l.pageSize)
		if n, ok := number(l.blocks); ok {
			r.put(l, total, n)
		}
		return
	case serverInfo: // the blocks of all ranks of the server, told once for each
		r.pageOf(l.pageSize)
		if n, ok := number(l.blocks); ok {
			if n = r.check(n, maxCount); n > 0 {
				r.serverBlocks, r.tellers = math.Max(r.serverBlocks, n), r.tellers+1
			}
		}
		return
	case page:
		if v = r.check(v, maxPage); v >= 1 {
			r.page = v
		}
		return
	case usage:
		if v > 1 && v <= 1.01 { // a rounding
			v = 1
		}
		v = r.check(v, 1)
	default:
		v = r.check(v, maxCount)
	}
	r.put(l, f, v)
}

// check is v, or -1 where nobody can believe it.
func (r *reading) check(v, most float64) float64 {
	if !(v >= 0 && v <= most) { // NaN too
		r.refused++
		return -1
	}
	return v
}

func (r *reading) pageOf(text []byte) {
	if n, ok := number(text); ok {
		if n = r.check(n, maxPage); n >= 1 {
			r.page = n
		}
	}
}

// number reads a label that holds a number; engines write None where they have
// none yet.
func number(text []byte) (float64, bool) {
	if len(text) == 0 {
		return 0, false
	}
	v, err := strconv.ParseFloat(string(text), 64)
	return v, err == nil
}

// put notes a value where it belongs. Of two for one rank, as of several processes
// or models, the larger one counts.
func (r *reading) put(l labels, f field, v float64) {
	if f == total {
		if v = r.check(v, maxCount); v == 0 {
			v = -1
		}
	}
	if v < 0 {
		return
	}
	rank, known := l.rankOf()
	switch {
	case !known && len(r.ranks) == 1:
		r.exact = true
		r.ranks[0].raise(f, v)
	case !known && f != total && f != maxTokens:
		r.strange++ // of several ranks nobody says which
	case !known:
		for i := range r.ranks {
			r.ranks[i].raise(f, v)
		}
	case rank >= r.first && rank-r.first < uint32(len(r.ranks)):
		r.exact = true
		r.ranks[rank-r.first].raise(f, v)
	case len(r.ranks) == 1:
		r.other(rank, f, v)
	default:
		r.strange++
	}
}

// other notes a value of another rank than the worker's only one.
func (r *reading) other(rank uint32, f field, v float64) {
	switch {
	case r.looseRanks == 0:
		r.looseRanks, r.looseRank = 1, rank
	case r.looseRank != rank:
		r.looseRanks = 2
		r.strange++
	}
	r.loose.raise(f, v)
}

// settle ends the reading: a worker's only rank is the only one there is.
func (r *reading) settle() {
	if r.tellers > 0 && r.tellers >= len(r.ranks) { // vLLM 0.9 has only its last rank
		own := math.Floor(r.serverBlocks / float64(r.tellers))
		for i := range r.ranks {
			r.ranks[i].raise(total, own)
		}
		r.loose.raise(total, own)
	}
	switch {
	case r.exact || r.looseRanks == 0:
	case r.looseRanks == 1:
		r.ranks[0] = r.loose
	default:
		r.strange++
	}
}

func (v *values) raise(f field, x float64) {
	at := v.at(f)
	*at = math.Max(*at, x)
}
