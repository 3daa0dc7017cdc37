package remote

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/routerd/routerd/fleet"
	"github.com/routerd/routerd/kvcache"
)

// The bounds of messages; see the package's documentation.
const (
	maxName    = 1024
	maxBlocks  = 1 << 16
	maxRanks   = 1 << 16
	maxFinds   = 1024
	maxRecords = 8192

	// MaxMessage bounds a message to the primary in bytes: three of the largest finds.
	MaxMessage = 4 << 20
)

const (
	magic      = "rdix"
	version    = 1
	headLength = 12

	kindFind     = 1
	kindFound    = 2
	kindRecord   = 3
	kindRecorded = 4

	statusOK     = 0
	statusNone   = 1 // no such partition
	statusSize   = 2 // blocks of another size
	statusNoRank = 3 // no such rank; of records only

	flagTrusted  = 1
	flagsUnknown = 0xff << (1 + kvcache.Tiers) & 0xff

	hashLength = 8
	rankLength = 12

	// The least lengths of items.
	leastFind     = 2 + 2 + 4 + 4 + 4
	leastFound    = 4 + 1
	leastRecord   = 2 + 2 + 4 + rankLength + 1 + 4
	leastRecorded = 1
)

// ErrMessage is what every error of a message that cannot be read wraps; its text says
// what is wrong where.
var ErrMessage = errors.New("bad message")

func bad(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMessage, fmt.Sprintf(format, args...))
}

var order = binary.LittleEndian

// appendHead begins a message.
func appendHead(b []byte, kind byte, items int) []byte {
	b = append(b, magic...)
	b = append(b, version, kind, 0, 0)
	return order.AppendUint32(b, uint32(items))
}

// setItems writes their number into the head of a message.
func setItems(message []byte, items int) { order.PutUint32(message[headLength-4:], uint32(items)) }

func appendName(b []byte, s string) []byte {
	return append(order.AppendUint16(b, uint16(len(s))), s...)
}

// appendPartition is what finds and records begin with.
func appendPartition(b []byte, key fleet.PartitionKey, blockSize int) []byte {
	return order.AppendUint32(appendName(appendName(b, key.Model), key.Group), uint32(blockSize))
}

func appendHashes(b []byte, blocks []kvcache.BlockHash) []byte {
	for _, h := range blocks {
		b = order.AppendUint64(b, uint64(h))
	}
	return b
}

func appendRank(b []byte, w fleet.Worker) []byte {
	return order.AppendUint32(order.AppendUint64(b, uint64(w.ID)), w.Rank)
}

// reader takes a message apart. After the first error everything it returns is empty.
type reader struct {
	rest []byte
	err  error
}

// take is the next n bytes.
func (r *reader) take(what string, n int) []byte {
	if r.err == nil && n > len(r.rest) {
		r.err = bad("%s: %d bytes are needed, %d are left", what, n, len(r.rest))
	}
	if r.err != nil {
		return nil
	}
	out := r.rest[:n:n]
	r.rest = r.rest[n:]
	return out
}

func (r *reader) byte(what string) byte {
	if b := r.take(what, 1); b != nil {
		return b[0]
	}
	return 0
}

// flag is a byte that is 0 or 1.
func (r *reader) flag(what string) bool {
	b := r.byte(what)
	if b > 1 && r.err == nil {
		r.err = bad("%s is %d, allowed are 0 and 1", what, b)
	}
	return b == 1
}

func (r *reader) uint16(what string) int {
	if b := r.take(what, 2); b != nil {
		return int(order.Uint16(b))
	}
	return 0
}

func (r *reader) uint32(what string) uint32 {
	if b := r.take(what, 4); b != nil {
		return order.Uint32(b)
	}
	return 0
}

// number is a count of things of at least so many bytes, of which there may be most. It is
// checked against what is left, so that room may be made for as many.
func (r *reader) number(what string, most, each int) int {
	n := int64(r.uint32(what))
	switch {
	case r.err != nil:
	case n > int64(most):
		r.err = bad("%d %s, at most %d are allowed", n, what, most)
	case n*int64(each) > int64(len(r.rest)):
		r.err = bad("%d %s have at least %d bytes, %d are left", n, what, n*int64(each), len(r.rest))
	}
	if r.err != nil {
		return 0
	}
	return int(n)
}

// head reads the beginning of a message of a kind, and returns the number of its items.
func (r *reader) head(kind byte, most, each int) int {
	b := r.take("the head", headLength-4)
	switch {
	case r.err != nil:
		return 0
	case string(b[:4]) != magic:
		r.err = bad("it begins with %q, not %q", b[:4], magic)
	case b[4] != version:
		r.err = bad("version %d, not %d", b[4], version)
	case b[5] != kind:
		r.err = bad("kind %d, not %d", b[5], kind)
	case b[6] != 0 || b[7] != 0:
		r.err = bad("the reserved bytes are %d and %d, not 0", b[6], b[7])
	}
	return r.number("items", most, each)
}

func (r *reader) name(what string) string {
	n := r.uint16(what)
	if n > maxName && r.err == nil {
		r.err = bad("%s has %d bytes, at most %d are allowed", what, n, maxName)
	}
	return string(r.take(what, n))
}

// partition reads what appendPartition writes.
func (r *reader) partition() (key fleet.PartitionKey, blockSize uint32) {
	key = fleet.PartitionKey{Model: r.name("the model's name"), Group: r.name("the group's name")}
	return key, r.uint32("the block size")
}

// hashes appends n hashes to out.
func (r *reader) hashes(n int, out []kvcache.BlockHash) []kvcache.BlockHash {
	b := r.take("the hashes", n*hashLength)
	for ; len(b) > 0; b = b[hashLength:] {
		out = append(out, kvcache.BlockHash(order.Uint64(b)))
	}
	return out
}

// ranks appends n ranks to out.
func (r *reader) ranks(n int, out []fleet.Worker) []fleet.Worker {
	b := r.take("the ranks", n*rankLength)
	for ; len(b) > 0; b = b[rankLength:] {
		out = append(out, fleet.Worker{ID: fleet.WorkerID(order.Uint64(b)), Rank: order.Uint32(b[8:])})
	}
	return out
}

// end makes sure that nothing follows.
func (r *reader) end() error {
	if r.err == nil && len(r.rest) > 0 {
		r.err = bad("%d bytes follow the last item", len(r.rest))
	}
	return r.err
}
