package wire

import "fmt"

// loadTag is the first element of a load message's array.
const loadTag = "LoadStat"

// maxLoad is the largest number of requests or tokens that is believed.
const maxLoad = 1 << 40

// Load is what an engine says of one rank over its load socket. A number below 0 is
// one that it does not say.
type Load struct {
	Running, Waiting int64 // requests
	// Tokens are held in the KV cache, which has room for MaxTokens.
	Tokens, MaxTokens int64
}

// DecodeLoad reads the payload of a load message (SGLang's): an array of its tag,
// running and waiting requests, tokens held and tokens that there is room for; what
// follows is left alone. A number that is nil, negative or absurd is unknown (-1), and
// no room is unknown too. Errors wrap ErrCorrupt.
func DecodeLoad(payload []byte) (Load, error) {
	c := cursor{buf: payload}
	if n, ok := c.array(); !ok || n < 5 {
		return Load{}, fmt.Errorf("read load message: %w: no array of at least 5", ErrCorrupt)
	}
	if tag, ok := c.text(false); !ok || string(tag) != loadTag {
		return Load{}, fmt.Errorf("read load message: %w: its tag is not %s", ErrCorrupt, loadTag)
	}
	var numbers [4]int64
	for i := range numbers {
		var ok bool
		if numbers[i], ok = believed(&c); !ok {
			return Load{}, fmt.Errorf("read load message: %w: no number at place %d", ErrCorrupt, i+1)
		}
	}
	l := Load{Running: numbers[0], Waiting: numbers[1], Tokens: numbers[2], MaxTokens: numbers[3]}
	if l.MaxTokens == 0 {
		l.MaxTokens = -1
	}
	return l, nil
}

// believed consumes a whole number or nil; -1 stands for one that is not believed.
func believed(c *cursor) (int64, bool) {
	if c.isNil() {
		return -1, true
	}
	bits, neg, ok := c.integer()
	if neg || bits > maxLoad {
		return -1, ok
	}
	return int64(bits), ok
}
