//go:build oracle

package oracle_test

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// booking is one that both have.
type booking struct {
	id   string
	on   rankKey
	tail int // blocks beyond its hashes: 1 if its prompt ends in a partly filled one
}

// booked notes what both have booked.
func (f *fleet) booked(body map[string]any, y answer) {
	tokens, _ := body["isl_tokens"].(int)
	if ids, ok := body["token_ids"].([]uint32); ok {
		tokens = len(ids)
	}
	f.live = append(f.live, booking{id: body["selection_id"].(string), on: chosen(y), tail: f.tail(tokens)})
}

func (f *fleet) tail(tokens int) int { return min(tokens%f.block, 1) }

// untail takes out of our loads what is to be there beyond theirs: the partly filled
// block at the end of each prompt that runs on a rank, and `more` for the prompt at
// hand; and, once something has faded, what fades in theirs though another request
// shares it. The loads are single ranks, lists of them, or partitions with such lists.
func (f *fleet) untail(x, y any, more int) {
	if f.equals {
		return
	}
	theirs := map[rankKey]uint64{}
	eachRank(x, func(k rankKey, m map[string]any) { theirs[k] = number(m, "potential_decode_blocks") })
	eachRank(y, func(k rankKey, m map[string]any) {
		beyond, name := more, "load counts the partly filled block of a prompt"
		for _, b := range f.live {
			if b.on == k {
				beyond += b.tail
				if b.tail > 1 {
					name = "load counts the tokens of a prompt that no hash covers"
				}
			}
		}
		want, is := theirs[k]
		got := number(m, "potential_decode_blocks")
		switch {
		case !is || got == want:
			return
		case got == want+uint64(beyond):
			f.led.except(name)
		case f.faded && got > want:
			f.led.except("a block that has faded counts whole for who shares it, and so does a partly filled one")
		default:
			return
		}
		m["potential_decode_blocks"] = json.Number(strconv.FormatUint(want, 10))
	})
}

// eachRank calls do for every object of a body that tells a rank's load.
func eachRank(v any, do func(rankKey, map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			eachRank(e, do)
		}
	case map[string]any:
		if _, is := v["potential_decode_blocks"]; is {
			do(rankKey{number(v, "worker_id"), int(number(v, "dp_rank"))}, v)
		}
		if list, is := v["loads"]; is {
			eachRank(list, do)
		}
	}
}

// externalLoads compares loads where blocks are in external storage: all but the tokens
// to prefill, of which theirs takes a quarter of such a block off.
func (f *fleet) externalLoads(tokens []uint32, body any, x, y answer) error {
	const what = "POST /potential_loads, external storage"
	less := false
	if x.status == http.StatusOK && y.status == http.StatusOK {
		theirs, names := map[rankKey]uint64{}, prefixes(tokens, f.block, "")
		eachRank(x.body, func(k rankKey, m map[string]any) { theirs[k] = number(m, "potential_prefill_tokens") })
		eachRank(y.body, func(k rankKey, m map[string]any) {
			want, got := theirs[k], number(m, "potential_prefill_tokens")
			if got > want && got == want+f.externalOff(k, names, len(tokens)) {
				less = true
				m["potential_prefill_tokens"] = json.Number(strconv.FormatUint(want, 10))
			}
		})
	}
	if f.judge(what, "POST /potential_loads", body, x, y, byRank("")) && less {
		f.led.except("a block of external storage leaves all of it to prefill; theirs takes a quarter off, as of disk")
	}
	return nil
}

// externalOff is how many tokens fewer a rank has to prefill in theirs, for what it
// holds of the prompt in external storage.
func (f *fleet) externalOff(k rankKey, names []uint64, tokens int) uint64 {
	device, host := f.held.depth(k, names, 1), f.held.depth(k, names, 2)
	disk, all := f.held.depth(k, names, 3), f.held.depth(k, names, 4)
	ours := row{tokens: tokens, device: device, host: host - device, disk: disk - host}
	theirs := ours
	theirs.disk = all - host
	return uint64(theirs.cached(f.block) - ours.cached(f.block))
}
