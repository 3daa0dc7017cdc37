package abi_test

import (
	"encoding/binary"
	"testing"

	"github.com/routerd/routerd/plugins/abi"
)

func TestStrideIsNeverAPowerOfTwoOfBytes(t *testing.T) {
	for n, want := range map[int]int{0: 8, 1: 8, 8: 8, 9: 16, 57: 72, 63: 72, 64: 72, 65: 72, 100: 104, 1000: 1000, 1020: 1032, 1024: 1032} {
		if got := abi.Stride(n); got != want {
			t.Errorf("Stride(%d) = %d, want %d", n, got, want)
		}
	}
	for n := range 5000 {
		if s := abi.Stride(n); s < n || s%8 != 0 || s%64 == 0 || s > n+16 {
			t.Fatalf("Stride(%d) = %d", n, s)
		}
	}
}

func TestLayoutBlocksAreAlignedAndApart(t *testing.T) {
	for _, spec := range []abi.LayoutSpec{
		{Capacity: 1},
		{Capacity: 1024, Columns: []bool{true, false, true}, Fields: 9, Adapter: true},
		{Capacity: abi.MaxRows, Columns: make([]bool, 256), Fields: 256},
	} {
		l, err := abi.NewLayout(spec)
		if err != nil {
			t.Fatal(err)
		}
		used := make([]bool, l.Size/abi.FrameAlign)
		take := func(name string, at uint32, size int) {
			if at%abi.FrameAlign != 0 {
				t.Errorf("%s at %d", name, at)
			}
			for b := at / abi.FrameAlign; b < (at+uint32(size)+abi.FrameAlign-1)/abi.FrameAlign; b++ {
				if used[b] {
					t.Fatalf("%s at %d lies on another block", name, at)
				}
				used[b] = true
			}
		}
		take("header", 0, abi.HeaderSize)
		take("column starts", l.ColumnStarts, 4*len(spec.Columns))
		take("request", l.Request, 8*spec.Fields)
		take("row ids", l.RowIDs, 4*l.Stride)
		take("mask", l.Mask, l.Stride)
		take("scores", l.Scores, 8*l.Stride)
		if spec.Adapter {
			take("adapter", l.Adapter, abi.AdapterSize)
		}
		for i, at := range l.Columns {
			if !spec.Columns[i] {
				if at != 0 {
					t.Errorf("absent column %d at %d", i, at)
				}
				continue
			}
			take("column", at, 8*l.Stride)
		}
	}
}

func TestNewLayoutRefusesWhatAManifestCannotAsk(t *testing.T) {
	for name, spec := range map[string]abi.LayoutSpec{
		"no rows":          {Capacity: 0},
		"too many rows":    {Capacity: abi.MaxRows + 1},
		"too many columns": {Capacity: 1, Columns: make([]bool, 257)},
		"too many fields":  {Capacity: 1, Fields: 257},
		"negative fields":  {Capacity: 1, Fields: -1},
	} {
		if _, err := abi.NewLayout(spec); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestHeaderHoldsTheLayoutAtItsOffsets(t *testing.T) {
	l, err := abi.NewLayout(abi.LayoutSpec{Capacity: 9, Columns: []bool{true, false}, Fields: 3, Adapter: true})
	if err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, l.Size)
	for i := range frame {
		frame[i] = 0xaa
	}
	l.PutHeader(frame)
	l.PutCall(frame, 7, 0x1122334455667788, abi.FlagPinned, true)
	want := map[int]uint32{
		0: 0x31465052, 4: 128, 8: 7, 12: 9, 16: 16, 20: 2, 24: l.ColumnStarts, 28: l.Scores, 32: l.Mask,
		36: l.Request, 40: 3, 44: l.RowIDs, 48: 0x55667788, 52: 0x11223344, 72: 0xffffffff, 76: 8, 88: l.Adapter,
	}
	for off := 0; off < abi.HeaderSize; off += 4 {
		if got := binary.LittleEndian.Uint32(frame[off:]); got != want[off] {
			t.Errorf("offset %d: got %#x, want %#x", off, got, want[off])
		}
	}
	if got := binary.LittleEndian.Uint32(frame[l.ColumnStarts:]); got != l.Columns[0] {
		t.Errorf("start of column 0 = %d, want %d", got, l.Columns[0])
	}
	l.PutCall(frame, 7, 1, 0, false)
	if got := binary.LittleEndian.Uint32(frame[abi.OffAdapter:]); got != 0 {
		t.Errorf("adapter block at %d without an adapter", got)
	}
}
