package kvcache

import "math/bits"

// The windows that a windowHash is for, in tokens: those of 17 to 128 bytes.
const (
	leastWindow = 5
	mostWindow  = 32
)

// XXH3's default secret, as far as such windows need it.
var secret = [4 * mostWindow / 8]uint64{
	0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
	0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
	0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
	0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
}

// windowHash is XXH3-64 with a seed over windows of a few tokens. What the tokens do not decide is made once for all
// windows of a list, and the tokens are read where they are.
type windowHash struct {
	window int
	begin  uint64
	keys   [len(secret)]uint64 // the secret with the seed
}

func newWindowHash(window int, seed uint64) windowHash {
	h := windowHash{window: window, begin: 4 * uint64(window) * 0x9E3779B185EBCA87}
	for i := 0; i < (window+7)/8*4; i += 2 {
		h.keys[i], h.keys[i+1] = secret[i]+seed, secret[i+1]-seed
	}
	return h
}

// of returns the hash of the first window of tokens: sixteen bytes from the front and as many from the back at a time,
// which meet or overlap in the middle.
func (h *windowHash) of(tokens []uint32) BlockHash {
	sum, k := h.begin, &h.keys
	tokens = tokens[:h.window]
	back := tokens[h.window-4:]
	sum += mix(tokens, k[0], k[1]) + mix(back, k[2], k[3])
	if h.window > 8 {
		back = tokens[h.window-8:]
		sum += mix(tokens[4:], k[4], k[5]) + mix(back, k[6], k[7])
	}
	if h.window > 16 {
		back = tokens[h.window-12:]
		sum += mix(tokens[8:], k[8], k[9]) + mix(back, k[10], k[11])
	}
	if h.window > 24 {
		back = tokens[h.window-16:]
		sum += mix(tokens[12:], k[12], k[13]) + mix(back, k[14], k[15])
	}
	sum ^= sum >> 37
	sum *= 0x165667919E3779F9
	return BlockHash(sum ^ sum>>32)
}

// mix folds four tokens and two keys into one number.
func mix(tokens []uint32, lo, hi uint64) uint64 {
	t := (*[4]uint32)(tokens)
	h, l := bits.Mul64((uint64(t[0])|uint64(t[1])<<32)^lo, (uint64(t[2])|uint64(t[3])<<32)^hi)
	return h ^ l
}
