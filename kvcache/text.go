package kvcache

import (
	"fmt"

	"github.com/zeebo/xxh3"
)

// BytesPerToken is the estimate of a text's length where its tokens are not known.
const BytesPerToken = 4

// textSeed keeps the hash of a block of text from being that of a block of tokens with the same bytes.
const textSeed = 0x7465_7874_626c_6b73

// TextHasher makes approximate blocks of a prompt whose tokens are not known: each covers as many bytes of the text as
// its tokens are estimated to have. They are comparable among themselves alone: no engine's event names them. A text
// that begins as another one does shares its full blocks. A TextHasher is owned by one goroutine.
type TextHasher struct {
	seed   uint64
	size   int    // of a block, in bytes
	begun  []byte // of the next block
	blocks []BlockHash
	length int
}

// NewTextHasher makes one for blocks of blockSize tokens in the scope of an adapter and a salt, either of which may be
// empty. It fails when blockSize is not positive.
func NewTextHasher(blockSize int, adapter, salt string) (*TextHasher, error) {
	if blockSize <= 0 {
		return nil, fmt.Errorf("hash text: block size %d: must be at least 1", blockSize)
	}
	return &TextHasher{seed: Seed(adapter, salt) + textSeed, size: BytesPerToken * blockSize}, nil
}

// Write appends to the text. How a text is cut into calls does not count. It keeps nothing of part.
func (t *TextHasher) Write(part []byte) {
	t.length += len(part)
	if len(t.begun) > 0 {
		n := min(t.size-len(t.begun), len(part))
		t.begun, part = append(t.begun, part[:n]...), part[n:]
		if len(t.begun) < t.size {
			return
		}
		t.add(t.begun)
		t.begun = t.begun[:0]
	}
	for len(part) >= t.size {
		t.add(part[:t.size])
		part = part[t.size:]
	}
	t.begun = append(t.begun, part...)
}

func (t *TextHasher) add(block []byte) {
	t.blocks = append(t.blocks, BlockHash(xxh3.HashSeed(block, t.seed)))
}

// Blocks returns the hash of every full block so far. The caller owns it once nothing more is written.
func (t *TextHasher) Blocks() []BlockHash { return t.blocks }

// Tokens returns the estimated length of the text so far.
func (t *TextHasher) Tokens() int { return t.length / BytesPerToken }
