package frame_test

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"github.com/routerd/routerd/plugins/abi"
	"github.com/routerd/routerd/plugins/sdk/go/frame"
)

// memory is a frame of three rows for one column and one field.
func memory(t *testing.T) (header []byte, p unsafe.Pointer) {
	t.Helper()
	return memoryOf(t, abi.LayoutSpec{Columns: []bool{true}, Fields: 1, Capacity: 3})
}

func memoryOf(t *testing.T, spec abi.LayoutSpec) (header []byte, p unsafe.Pointer) {
	t.Helper()
	l, err := abi.NewLayout(spec)
	if err != nil {
		t.Fatal(err)
	}
	words := make([]uint64, l.Size/8)
	p = unsafe.Pointer(unsafe.SliceData(words))
	header = unsafe.Slice((*byte)(p), l.Size)
	l.PutHeader(header)
	l.PutCall(header, 3, 0, 0, false)
	return header, p
}

func TestBeginRefusesAFrameThatIsNotWhatWasDeclared(t *testing.T) {
	zeroes := make([]float64, 3)
	absent := unsafe.Pointer(unsafe.SliceData(zeroes))
	for _, c := range []struct {
		name   string
		off    int
		value  uint32
		want   int32
		accept bool
	}{
		{"as laid out", abi.OffRows, 3, frame.CodeOK, true},
		{"other magic", abi.OffMagic, 7, frame.CodeBadFrame, false},
		{"short header", abi.OffHeaderSize, 64, frame.CodeBadFrame, false},
		{"longer header of a later host", abi.OffHeaderSize, 192, frame.CodeOK, true},
		{"other columns", abi.OffColumns, 2, frame.CodeBadFrame, false},
		{"other fields", abi.OffRequestCount, 0, frame.CodeBadFrame, false},
		{"no rows", abi.OffRows, 0, frame.CodeCapacity, false},
		{"rows over capacity", abi.OffRows, 4, frame.CodeCapacity, false},
		{"rows that would be negative", abi.OffRows, 1 << 31, frame.CodeCapacity, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, calls := range []int{0, 1, 2} {
				header, p := memory(t)
				var v frame.View
				if code := v.Bind(p, absent, 3, 1, 1); code != frame.CodeOK {
					t.Fatalf("bind: code %d", code)
				}
				for range calls {
					if code := v.Begin(p); code != frame.CodeOK {
						t.Fatalf("a good call before: code %d", code)
					}
				}
				binary.LittleEndian.PutUint32(header[c.off:], c.value)
				for range 2 {
					if got := v.Begin(p); got != c.want {
						t.Errorf("after %d calls: code %d, want %d", calls, got, c.want)
					}
				}
				if c.accept && v.Len() != 3 {
					t.Errorf("%d rows", v.Len())
				}
			}
		})
	}
}

func TestBeginBeforeBindSaysSo(t *testing.T) {
	var v frame.View
	_, p := memory(t)
	for _, at := range []unsafe.Pointer{nil, p} {
		if code := v.Begin(at); code != frame.CodeNotBound {
			t.Errorf("code %d", code)
		}
	}
}

func TestBindRefusesNothingToBind(t *testing.T) {
	_, p := memory(t)
	var v frame.View
	for name, code := range map[string]int32{
		"no frame":         v.Bind(nil, p, 3, 1, 1),
		"no rows":          v.Bind(p, p, 0, 1, 1),
		"too many columns": v.Bind(p, p, 3, frame.MaxColumns+1, 1),
	} {
		if code != frame.CodeBadFrame {
			t.Errorf("%s: code %d", name, code)
		}
	}
}

func TestBeginRefusesAFrameOfZeroes(t *testing.T) {
	words := make([]uint64, 64)
	p := unsafe.Pointer(unsafe.SliceData(words))
	var v frame.View
	v.Bind(p, p, 3, 1, 1)
	for range 2 {
		if code := v.Begin(p); code != frame.CodeBadFrame {
			t.Errorf("code %d", code)
		}
	}
}

// A host may move columns between calls: the header is read at each, also past
// what is compared to tell a change.
func TestBeginFollowsTheHeaderOfEachCall(t *testing.T) {
	for _, columns := range []int{1, 2, 15, 16, 17, 40, frame.MaxColumns} {
		present := make([]bool, columns)
		for i := range present {
			present[i] = true
		}
		header, p := memoryOf(t, abi.LayoutSpec{Columns: present, Fields: 1, Capacity: 3})
		zeroes := make([]float64, 3)
		var v frame.View
		v.Bind(p, unsafe.Pointer(unsafe.SliceData(zeroes)), 3, columns, 1)
		starts := binary.LittleEndian.Uint32(header[abi.OffColumnStarts:])
		for i := range columns {
			at := header[int(starts)+4*i:]
			start := binary.LittleEndian.Uint32(at)
			header[start+16+7] = 0x40 // row 2 is 2
			if v.Begin(p) != frame.CodeOK || !v.Has(i) || v.Column(i).At(2) != 2 {
				t.Fatalf("column %d of %d is there and not seen", i, columns)
			}
			binary.LittleEndian.PutUint32(at, 0)
			if v.Begin(p) != frame.CodeOK || v.Has(i) || v.Column(i).At(2) != 0 {
				t.Fatalf("column %d of %d is gone and still seen", i, columns)
			}
		}
	}
}

func TestBeginFollowsTheOtherBlocks(t *testing.T) {
	header, p := memory(t)
	var v frame.View
	v.Bind(p, p, 3, 1, 1)
	if code := v.Begin(p); code != frame.CodeOK {
		t.Fatalf("code %d", code)
	}
	other := binary.LittleEndian.Uint32(header[abi.OffRowIDs:])
	clear(header[other : other+64])
	header[other+7], header[other] = 0x40, 1 // 2, but for a bit; kept
	for _, off := range []int{abi.OffScores, abi.OffMask, abi.OffRequest} {
		binary.LittleEndian.PutUint32(header[off:], other)
		if code := v.Begin(p); code != frame.CodeOK {
			t.Fatalf("code %d", code)
		}
	}
	if v.Scores().At(0) < 2 || v.Field(0) < 2 || !v.Mask().Kept(0) {
		t.Error("a block that moved is read where it was")
	}
}
