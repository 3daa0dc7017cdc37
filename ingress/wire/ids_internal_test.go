package wire

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"
)

// Lists of ids in all forms, cut and spoilt ones too, are read as one id after the other is.
func TestListsOfIDsAreReadAsTheirIDsAre(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	values := []uint64{0, 1, 127, 128, 255, 256, 65535, 65536, 128255, 1<<31 - 1, 1<<32 - 1}
	read, refused := 0, 0
	for range 20_000 {
		var buf []byte
		n := r.IntN(20)
		for range n {
			v := values[r.IntN(len(values))]
			switch form := r.IntN(40); {
			case form == 0:
				buf = append(buf, 0xff) // -1
			case form == 1:
				buf = binary.BigEndian.AppendUint64(append(buf, 0xcf), v|1<<32)
			case form == 2:
				buf = binary.BigEndian.AppendUint64(append(buf, 0xcf), v)
			case form == 3:
				buf = binary.BigEndian.AppendUint32(append(buf, 0xd2), uint32(v>>1))
			case form == 4:
				buf = append(buf, 0xa1, 'x')
			case v < 1<<7 && form%4 == 0:
				buf = append(buf, byte(v))
			case v < 1<<8 && form%4 < 2:
				buf = append(buf, 0xcc, byte(v))
			case v < 1<<16 && form%4 < 3:
				buf = binary.BigEndian.AppendUint16(append(buf, 0xcd), uint16(v))
			default:
				buf = binary.BigEndian.AppendUint32(append(buf, 0xce), uint32(v))
			}
		}
		buf = append(buf, make([]byte, r.IntN(10))...)
		if r.IntN(4) == 0 {
			buf = buf[:r.IntN(len(buf)+1)]
		}
		list, single := Batch{tokens: []uint32{5}}, Batch{tokens: []uint32{5}}
		c, d := cursor{buf: buf}, cursor{buf: buf}
		got, want := list.ids(&c, n), true
		for i := 0; i < n && want; i++ {
			want = single.token(&d)
		}
		if got != want || c.pos != d.pos || c.bad != d.bad {
			t.Fatalf("%x: read %v to %d, bad %v; one by one %v to %d, bad %v", buf, got, c.pos, c.bad, want, d.pos, d.bad)
		}
		if !want {
			refused++
			continue
		}
		read++
		if !slices.Equal(list.tokens, single.tokens) {
			t.Fatalf("%x: read %v, one by one %v", buf, list.tokens, single.tokens)
		}
	}
	if read < 1000 || refused < 1000 {
		t.Errorf("%d lists were read and %d refused", read, refused)
	}
}
