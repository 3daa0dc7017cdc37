package wire_test

import (
	"encoding/binary"
	"math"
)

// The pack functions write msgpack for tests, in full width so that each branch of the reader is met.

type arr []any

type kv struct {
	key string
	val any
}

type obj []kv

type raw []byte

func pack(v any) []byte { return appendPacked(nil, v) }

func appendPacked(b []byte, v any) []byte {
	switch x := v.(type) {
	case nil:
		return append(b, 0xc0)
	case bool:
		if x {
			return append(b, 0xc3)
		}
		return append(b, 0xc2)
	case int:
		if x >= 0 && x < 128 {
			return append(b, byte(x))
		}
		return binary.BigEndian.AppendUint64(append(b, 0xd3), uint64(int64(x)))
	case uint64:
		return binary.BigEndian.AppendUint64(append(b, 0xcf), x)
	case float64:
		return binary.BigEndian.AppendUint64(append(b, 0xcb), math.Float64bits(x))
	case string:
		return append(binary.BigEndian.AppendUint16(append(b, 0xda), uint16(len(x))), x...)
	case []byte:
		return append(append(b, 0xc4, byte(len(x))), x...)
	case raw:
		return append(b, x...)
	case arr:
		b = binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(len(x)))
		for _, e := range x {
			b = appendPacked(b, e)
		}
		return b
	case obj:
		b = binary.BigEndian.AppendUint16(append(b, 0xde), uint16(len(x)))
		for _, e := range x {
			b = appendPacked(appendPacked(b, e.key), e.val)
		}
		return b
	}
	panic("pack: type not covered")
}

func batch(events ...any) []byte { return pack(arr{1.5, arr(events), 0}) }

func stored(extra ...any) arr {
	return append(arr{"BlockStored", arr{7, 8}, nil, arr{1, 2, 3, 4}, 2}, extra...)
}
