// Package xxh3 is the 64-bit XXH3 hash with seed 0. It stands apart from package
// abi so that a guest that only needs ids does not carry the manifest parser. It
// is pure: no state, no allocation, safe for concurrent use.
package xxh3

import "math/bits"

// Sum is the 64-bit XXH3 hash of s with seed 0. It allocates nothing.
func Sum(s string) uint64 {
	switch n := len(s); {
	case n > 240:
		return xxhLong(s)
	case n > 128:
		return xxh129to240(s)
	case n > 16:
		return xxh17to128(s)
	case n > 8:
		return xxh9to16(s)
	case n >= 4:
		return xxh4to8(s)
	case n > 0:
		return xxh1to3(s)
	default:
		return xxh64Avalanche(secret64(56) ^ secret64(64))
	}
}

const (
	prime32x1 = 0x9E3779B1
	prime32x2 = 0x85EBCA77
	prime32x3 = 0xC2B2AE3D

	prime64x1 = 0x9E3779B185EBCA87
	prime64x2 = 0xC2B2AE3D27D4EB4F
	prime64x3 = 0x165667B19E3779F9
	prime64x4 = 0x85EBCA77C2B2AE63
	prime64x5 = 0x27D4EB2F165667C5

	primeMX1 = 0x165667919E3779F9
	primeMX2 = 0x9FB21C651E98DF25
)

// The long form works in stripes of 64 bytes, each with the secret moved on by
// 8 bytes, and scrambles its lanes after as many stripes as the secret allows.
const (
	stripeLen       = 64
	stripesPerBlock = (len(secret) - stripeLen) / 8
	blockLen        = stripeLen * stripesPerBlock
)

func xxh1to3(s string) uint64 {
	n := len(s)
	mix := uint32(s[0])<<16 | uint32(s[n>>1])<<24 | uint32(s[n-1]) | uint32(n)<<8
	flip := uint64(secret32(0) ^ secret32(4))
	return xxh64Avalanche(uint64(mix) ^ flip)
}

func xxh4to8(s string) uint64 {
	n := len(s)
	first, last := load32(s, 0), load32(s, n-4)
	h := uint64(last) + uint64(first)<<32
	h ^= secret64(8) ^ secret64(16)
	h ^= bits.RotateLeft64(h, 49) ^ bits.RotateLeft64(h, 24)
	h *= primeMX2
	h ^= h>>35 + uint64(n)
	h *= primeMX2
	return h ^ h>>28
}

func xxh9to16(s string) uint64 {
	n := len(s)
	lo := load64(s, 0) ^ secret64(24) ^ secret64(32)
	hi := load64(s, n-8) ^ secret64(40) ^ secret64(48)
	return avalanche(uint64(n) + bits.ReverseBytes64(lo) + hi + fold(lo, hi))
}

func xxh17to128(s string) uint64 {
	n := len(s)
	acc := uint64(n) * prime64x1
	for i := (n - 1) / 32; i >= 0; i-- {
		acc += mix16(s, 16*i, 32*i) + mix16(s, n-16*(i+1), 32*i+16)
	}
	return avalanche(acc)
}

func xxh129to240(s string) uint64 {
	n := len(s)
	acc := uint64(n) * prime64x1
	for i := range 8 {
		acc += mix16(s, 16*i, 16*i)
	}
	acc = avalanche(acc)
	for i := 8; i < n/16; i++ {
		acc += mix16(s, 16*i, 16*(i-8)+3)
	}
	return avalanche(acc + mix16(s, n-16, 136-17))
}

func xxhLong(s string) uint64 {
	n := len(s)
	acc := [8]uint64{prime32x3, prime64x1, prime64x2, prime64x3, prime64x4, prime32x2, prime64x5, prime32x1}
	at := 0
	for ; at+blockLen < n; at += blockLen {
		for i := range stripesPerBlock {
			accumulate(&acc, s, at+stripeLen*i, 8*i)
		}
		scramble(&acc)
	}
	for i := 0; at+stripeLen < n; i, at = i+1, at+stripeLen {
		accumulate(&acc, s, at, 8*i)
	}
	accumulate(&acc, s, n-stripeLen, len(secret)-stripeLen-7)

	h := uint64(n) * prime64x1
	for i := range 4 {
		h += fold(acc[2*i]^secret64(11+16*i), acc[2*i+1]^secret64(19+16*i))
	}
	return avalanche(h)
}

func accumulate(acc *[8]uint64, s string, at, key int) {
	for i := range acc {
		v := load64(s, at+8*i)
		k := v ^ secret64(key+8*i)
		acc[i^1] += v
		acc[i] += uint64(uint32(k)) * (k >> 32)
	}
}

func scramble(acc *[8]uint64) {
	for i := range acc {
		a := acc[i]
		a ^= a >> 47
		a ^= secret64(len(secret) - stripeLen + 8*i)
		acc[i] = a * prime32x1
	}
}

func mix16(s string, at, key int) uint64 {
	return fold(load64(s, at)^secret64(key), load64(s, at+8)^secret64(key+8))
}

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func avalanche(h uint64) uint64 {
	h ^= h >> 37
	h *= primeMX1
	return h ^ h>>32
}

func xxh64Avalanche(h uint64) uint64 {
	h ^= h >> 33
	h *= prime64x2
	h ^= h >> 29
	h *= prime64x3
	return h ^ h>>32
}

func load32(s string, at int) uint32 {
	s = s[at : at+4]
	return uint32(s[0]) | uint32(s[1])<<8 | uint32(s[2])<<16 | uint32(s[3])<<24
}

func load64(s string, at int) uint64 {
	return uint64(load32(s, at)) | uint64(load32(s, at+4))<<32
}

func secret32(at int) uint32 { return load32(secret, at) }
func secret64(at int) uint64 { return load64(secret, at) }

// secret is XXH3's default secret of 192 bytes.
const secret = "" +
	"\xb8\xfe\x6c\x39\x23\xa4\x4b\xbe\x7c\x01\x81\x2c\xf7\x21\xad\x1c" +
	"\xde\xd4\x6d\xe9\x83\x90\x97\xdb\x72\x40\xa4\xa4\xb7\xb3\x67\x1f" +
	"\xcb\x79\xe6\x4e\xcc\xc0\xe5\x78\x82\x5a\xd0\x7d\xcc\xff\x72\x21" +
	"\xb8\x08\x46\x74\xf7\x43\x24\x8e\xe0\x35\x90\xe6\x81\x3a\x26\x4c" +
	"\x3c\x28\x52\xbb\x91\xc3\x00\xcb\x88\xd0\x65\x8b\x1b\x53\x2e\xa3" +
	"\x71\x64\x48\x97\xa2\x0d\xf9\x4e\x38\x19\xef\x46\xa9\xde\xac\xd8" +
	"\xa8\xfa\x76\x3f\xe3\x9c\x34\x3f\xf9\xdc\xbb\xc7\xc7\x0b\x4f\x1d" +
	"\x8a\x51\xe0\x4b\xcd\xb4\x59\x31\xc8\x9f\x7e\xc9\xd9\x78\x73\x64" +
	"\xea\xc5\xac\x83\x34\xd3\xeb\xc3\xc5\x81\xa0\xff\xfa\x13\x63\xeb" +
	"\x17\x0d\xdd\x51\xb7\xf0\xda\x49\xd3\x16\x55\x26\x29\xd4\x68\x9e" +
	"\x2b\x16\xbe\x58\x7d\x47\xa1\xfc\x8f\xf8\xb8\xd1\x7a\xd0\x31\xce" +
	"\x45\xcb\x3a\x8f\x95\x16\x04\x28\xaf\xd7\xfb\xca\xbb\x4b\x40\x7e"
