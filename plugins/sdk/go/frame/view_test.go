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
	l, err := abi.NewLayout(abi.LayoutSpec{Columns: []bool{true}, Fields: 1, Capacity: 3})
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
			header, p := memory(t)
			binary.LittleEndian.PutUint32(header[c.off:], c.value)
			var v frame.View
			if code := v.Bind(p, absent, 3, 1, 1); code != frame.CodeOK {
				t.Fatalf("bind: code %d", code)
			}
			if got := v.Begin(); got != c.want {
				t.Errorf("code %d, want %d", got, c.want)
			}
			if c.accept && v.Len() != 3 {
				t.Errorf("%d rows", v.Len())
			}
		})
	}
}

func TestBeginBeforeBindSaysSo(t *testing.T) {
	var v frame.View
	if code := v.Begin(); code != frame.CodeNotBound {
		t.Errorf("code %d", code)
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

// A host may move columns between calls: the header is read at each.
func TestBeginFollowsTheHeaderOfEachCall(t *testing.T) {
	header, p := memory(t)
	zeroes := make([]float64, 3)
	var v frame.View
	v.Bind(p, unsafe.Pointer(unsafe.SliceData(zeroes)), 3, 1, 1)
	if v.Begin() != frame.CodeOK || !v.Has(0) {
		t.Fatal("the column is there and not seen")
	}
	binary.LittleEndian.PutUint32(header[binary.LittleEndian.Uint32(header[abi.OffColumnStarts:]):], 0)
	if v.Begin() != frame.CodeOK || v.Has(0) || v.Column(0).At(2) != 0 {
		t.Error("the column is gone and still seen")
	}
}
