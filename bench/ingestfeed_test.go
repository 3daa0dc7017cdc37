package bench_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	zmq4 "github.com/pebbe/zmq4"

	"github.com/routerd/routerd/ingress/wire"
)

// Sizes of a message of the feed, in blocks and tokens, and of a chain, in blocks.
const (
	ingestBlocks = 16
	ingestSize   = 16
	ingestDepth  = 512
)

// publishEvents is a publisher for each of some workers, with real PUB sockets.
// When all have a subscriber it sends so many messages, in turns, at a rate of so
// many a second in all, 0 for as fast as they go: each stores ingestBlocks blocks.
func publishEvents(args []string) ([]string, func() error, error) {
	form := args[0]
	var n [3]int
	for i := range n {
		var err error
		if n[i], err = strconv.Atoi(args[1+i]); err != nil {
			return nil, nil, fmt.Errorf("publish events: %w", err)
		}
	}
	workers, messages, rate := n[0], n[1], n[2]
	feed := make([][][]byte, workers)
	for w := range feed {
		feed[w] = eventsOf(form, uint64(w), messages/workers)
	}
	zctx, err := zmq4.NewContext()
	if err != nil {
		return nil, nil, fmt.Errorf("publish events: %w", err)
	}
	var addrs []string
	var all []*zmq4.Socket
	for range workers {
		s, addr, err := publisherSocket(zctx)
		if err != nil {
			return nil, nil, fmt.Errorf("publish events: %w", err)
		}
		all, addrs = append(all, s), append(addrs, addr)
	}
	sent := make(chan error, 1)
	go func() { sent <- sendAll(all, feed, rate) }()
	stop := func() error {
		err := <-sent
		for _, s := range all {
			err = errors.Join(err, s.Close())
		}
		return errors.Join(err, zctx.Term())
	}
	return addrs, stop, nil
}

func publisherSocket(zctx *zmq4.Context) (*zmq4.Socket, string, error) {
	s, err := zctx.NewSocket(zmq4.XPUB)
	if err != nil {
		return nil, "", err
	}
	err = errors.Join(s.SetSndhwm(0), s.SetLinger(0), s.SetRcvtimeo(time.Minute), s.Bind("tcp://127.0.0.1:*"))
	addr, last := s.GetLastEndpoint()
	return s, strings.TrimRight(addr, "\x00"), errors.Join(err, last)
}

func sendAll(all []*zmq4.Socket, feed [][][]byte, rate int) error {
	for _, s := range all {
		if _, err := s.RecvBytes(0); err != nil {
			return fmt.Errorf("wait for a subscriber: %w", err)
		}
	}
	began := time.Now()
	for i := range feed[0] {
		for w, s := range all {
			if _, err := s.SendMessage("", wire.SequenceFrame(uint64(i)), feed[w][i]); err != nil {
				return fmt.Errorf("send events: %w", err)
			}
		}
		if rate > 0 {
			due := began.Add(time.Duration((i+1)*len(all)) * time.Second / time.Duration(rate))
			<-time.After(time.Until(due))
		}
	}
	return nil
}

// eventsOf are the payloads of one worker: arrays as vLLM sent them up to 0.23,
// or maps as 0.33 sends them.
func eventsOf(form string, worker uint64, messages int) [][]byte {
	var all [][]byte
	var parent uint64
	depth := ingestDepth
	for i := range messages {
		if depth >= ingestDepth {
			parent, depth = 0, 0
		}
		hashes := make([]uint64, ingestBlocks)
		for k := range hashes {
			hashes[k] = mixed(worker<<48^uint64(i)<<16^uint64(k)) >> 1
		}
		p := &packed{}
		p.array(3)
		p.float(1764000000)
		p.array(1)
		if form == "array" {
			p.array(6)
			p.text("BlockStored")
			p.store(hashes, parent, func(string) {})
			p.null()
		} else {
			p.mapping(11)
			p.text("type")
			p.text("BlockStored")
			p.store(hashes, parent, p.text)
			p.latest()
		}
		p.number(0)
		all = append(all, p.b)
		parent, depth = hashes[len(hashes)-1], depth+ingestBlocks
	}
	return all
}

// mixed is the mixing function of SplitMix64.
func mixed(z uint64) uint64 {
	z += 0x9E3779B97F4A7C15
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

// packed is msgpack in its shortest form.
type packed struct{ b []byte }

// store packs what both forms have of a store; key comes before each value.
func (p *packed) store(hashes []uint64, parent uint64, key func(string)) {
	key("block_hashes")
	p.array(len(hashes))
	for _, h := range hashes {
		p.number(h)
	}
	key("parent_block_hash")
	if parent == 0 {
		p.null()
	} else {
		p.number(parent)
	}
	key("token_ids")
	p.array(len(hashes) * ingestSize)
	for _, h := range hashes {
		for i := range ingestSize {
			p.number(h >> (i % 40) % 128000)
		}
	}
	key("block_size")
	p.number(ingestSize)
}

// latest packs the rest of a map of vLLM 0.33.
func (p *packed) latest() {
	p.text("lora_id")
	p.null()
	p.text("medium")
	p.text("GPU")
	p.text("lora_name")
	p.null()
	p.text("extra_keys")
	p.array(ingestBlocks)
	for range ingestBlocks {
		p.null()
	}
	p.text("group_idx")
	p.number(0)
	p.text("kv_cache_spec_kind")
	p.text("full_attention")
}

func (p *packed) null() { p.b = append(p.b, 0xc0) }

func (p *packed) array(n int) {
	if n < 16 {
		p.b = append(p.b, 0x90|byte(n))
		return
	}
	p.b = binary.BigEndian.AppendUint16(append(p.b, 0xdc), uint16(n))
}

func (p *packed) mapping(n int) { p.b = append(p.b, 0x80|byte(n)) }

func (p *packed) text(s string) {
	if len(s) < 32 {
		p.b = append(append(p.b, 0xa0|byte(len(s))), s...)
		return
	}
	p.b = append(append(p.b, 0xd9, byte(len(s))), s...)
}

func (p *packed) float(v float64) {
	p.b = binary.BigEndian.AppendUint64(append(p.b, 0xcb), math.Float64bits(v))
}

func (p *packed) number(v uint64) {
	switch {
	case v < 1<<7:
		p.b = append(p.b, byte(v))
	case v < 1<<8:
		p.b = append(p.b, 0xcc, byte(v))
	case v < 1<<16:
		p.b = binary.BigEndian.AppendUint16(append(p.b, 0xcd), uint16(v))
	case v < 1<<32:
		p.b = binary.BigEndian.AppendUint32(append(p.b, 0xce), uint32(v))
	default:
		p.b = binary.BigEndian.AppendUint64(append(p.b, 0xcf), v)
	}
}
