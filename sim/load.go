package sim

import (
	"encoding/binary"
	"time"

	"github.com/tinylib/msgp/msgp"
)

// SGLang's load socket: three frames, topic, number and an array, when a count has
// changed and otherwise once each heartbeat.
const (
	loadTopic     = "load"
	loadTag       = "LoadStat"
	loadHWM       = 8
	loadHeartbeat = time.Second
)

// loadStat is the load of one rank.
type loadStat struct {
	running, waiting, tokens, maxTokens, total, maxRunning int
}

// loadOf reads the load of a rank.
func (e *Engine) loadOf(rank int) loadStat {
	s := e.ranks[rank].state()
	capacity := e.cfg.Blocks * e.cfg.BlockSize
	used := int(s.usage * float64(capacity))
	return loadStat{
		running: len(s.running), waiting: len(s.waiting), tokens: used, maxTokens: capacity,
		total: used, maxRunning: e.cfg.Slots,
	}
}

// publishLoad sends a rank's load when it is due.
func (o *outlet) publishLoad(now time.Time) {
	if o.load == nil {
		return
	}
	s := o.p.load(o.rank)
	if s == o.lastLoad && now.Sub(o.lastLoadAt) < loadHeartbeat {
		return
	}
	var seq [8]byte
	binary.BigEndian.PutUint64(seq[:], o.loadSeq)
	o.loadSeq++
	o.lastLoad, o.lastLoadAt = s, now
	if _, err := o.load.SendMessageDontwait(loadTopic, seq[:], encodeLoad(s, o.rank)); err != nil {
		o.p.log.Warn("publish load", "rank", o.rank, "err", err)
	}
}

// encodeLoad writes the array of SGLang 0.5.23; what the simulator does not count,
// tokens that wait without a cached prefix and sums of prefill, is 0.
func encodeLoad(s loadStat, rank int) []byte {
	b := msgp.AppendArrayHeader(nil, 11)
	b = msgp.AppendString(b, loadTag)
	for _, n := range []int{s.running, s.waiting, s.tokens, s.maxTokens, rank, 0, s.total, s.maxRunning, 0, 0} {
		b = msgp.AppendInt(b, n)
	}
	return b
}

// LoadEndpoints are the addresses of SGLang's load socket by rank; empty without
// one. Valid after Start.
func (e *Engine) LoadEndpoints() map[int]string {
	if e.publisher == nil {
		return map[int]string{}
	}
	return e.publisher.copied(e.publisher.loads)
}
