package exact

import (
	"github.com/routerd/routerd/indexer/runtrie"
	"github.com/routerd/routerd/kvcache"
)

// opaque has the hashes that the engine stored and that cannot be indexed, with a bit for each tier that has them. It
// is a table whose blocks are those bits.
type opaque struct{ table }

// on returns the bits of a hash.
func (o *opaque) on(e kvcache.EngineHash) uint8 {
	bits, _ := o.get(e)
	return uint8(bits)
}

// set gives a hash other bits.
func (o *opaque) set(e kvcache.EngineHash, bits uint8) {
	if bits == 0 {
		o.take(e)
		o.shrink()
		return
	}
	o.room(e)
	_, place := o.get(e)
	o.put(e, place, runtrie.Ref(bits))
}

// mark notes that a tier has a hash.
func (o *opaque) mark(tier kvcache.Tier, e kvcache.EngineHash) { o.set(e, o.on(e)|1<<tier) }

// clear notes that a tier does not have a hash.
func (o *opaque) clear(tier kvcache.Tier, e kvcache.EngineHash) {
	if bits := o.on(e); bits&(1<<tier) != 0 {
		o.set(e, bits&^(1<<tier))
	}
}
