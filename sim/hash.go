package sim

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
)

// digest is the engine's own hash of a block and all blocks before it.
type digest [sha256.Size]byte

// rootDigest is the parent of every first block. It depends on the engine's
// name: two engines never share a hash, so a router that compares them fails.
func rootDigest(name string) digest {
	return sha256.Sum256([]byte("sim\x00" + name))
}

// child hashes one block; tokens are little-endian uint32 values.
func (d digest) child(tokens, adapter string) digest {
	buf := make([]byte, 0, len(d)+len(tokens)+len(adapter))
	buf = append(buf, d[:]...)
	buf = append(buf, tokens...)
	buf = append(buf, adapter...)
	return sha256.Sum256(buf)
}

// number is the 64-bit wire form: the last 8 bytes, big-endian.
func (d digest) number() uint64 {
	return binary.BigEndian.Uint64(d[len(d)-8:])
}

// text is the hash as GET /sim/blocks prints it.
func (d digest) text(form HashForm) string {
	if form == HashBytes {
		return "x:" + hex.EncodeToString(d[:])
	}
	return strconv.FormatUint(d.number(), 10)
}
