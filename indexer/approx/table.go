package approx

import "unsafe"

// minSlots is the size of the smallest table.
const minSlots = 8

// table has numbers of pins by keys: open addressing with linear probing, which a removal
// closes up. A key may be there more than once.
type table struct {
	slots []slot
	used  int
	total *int // bytes of all tables
}

// slot is a pin by a key; pin 0 is none.
type slot struct{ key, pin uint32 }

func (t *table) home(key uint32) int {
	return int(uint64(key*0x9e3779b1) * uint64(len(t.slots)) >> 32)
}

func (t *table) next(i int) int {
	if i++; i == len(t.slots) {
		return 0
	}
	return i
}

// get returns a pin of a key, or 0.
func (t *table) get(key uint32) uint32 {
	if i := t.place(key, 0); i >= 0 {
		return t.slots[i].pin
	}
	return 0
}

// all appends the pins of a key.
func (t *table) all(pins []uint32, key uint32) []uint32 {
	if len(t.slots) == 0 {
		return pins
	}
	for i := t.home(key); t.slots[i].pin != 0; i = t.next(i) {
		if t.slots[i].key == key {
			pins = append(pins, t.slots[i].pin)
		}
	}
	return pins
}

// place is where a key is with a pin, or with any for 0; -1 where it is not.
func (t *table) place(key, pin uint32) int {
	if len(t.slots) == 0 {
		return -1
	}
	for i := t.home(key); t.slots[i].pin != 0; i = t.next(i) {
		if s := t.slots[i]; s.key == key && (pin == 0 || s.pin == pin) {
			return i
		}
	}
	return -1
}

// set gives the only pin of a key, which may be new, another number.
func (t *table) set(key, pin uint32) {
	if i := t.place(key, 0); i >= 0 {
		t.slots[i].pin = pin
		return
	}
	t.add(key, pin)
}

// add adds a pin to a key.
func (t *table) add(key, pin uint32) {
	if (t.used+1)*4 > len(t.slots)*3 {
		t.resize(max(minSlots, 2*len(t.slots)))
	}
	t.put(slot{key, pin})
	t.used++
}

func (t *table) put(s slot) {
	i := t.home(s.key)
	for t.slots[i].pin != 0 {
		i = t.next(i)
	}
	t.slots[i] = s
}

// remove takes a pin from a key that has it.
func (t *table) remove(key, pin uint32) {
	hole := t.place(key, pin)
	for i := t.next(hole); t.slots[i].pin != 0; i = t.next(i) {
		home := t.home(t.slots[i].key)
		if between := hole < home && home <= i || i < hole && (hole < home || home <= i); !between {
			t.slots[hole] = t.slots[i]
			hole = i
		}
	}
	t.slots[hole] = slot{}
	switch t.used--; {
	case t.used == 0:
		t.resize(0)
	case len(t.slots) > minSlots && t.used*8 < len(t.slots):
		t.resize(len(t.slots) / 2)
	}
}

func (t *table) resize(size int) {
	was := t.slots
	t.slots = make([]slot, size)
	*t.total += int(unsafe.Sizeof(slot{})) * (size - len(was))
	for _, s := range was {
		if s.pin != 0 {
			t.put(s)
		}
	}
}
