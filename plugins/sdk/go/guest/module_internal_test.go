package guest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"

	"github.com/routerd/routerd/plugins/abi"
	"github.com/routerd/routerd/plugins/sdk/go/frame"
)

// reset makes the next test a fresh module; the tests of this file do not run
// at once.
func reset(t *testing.T, m Module) {
	t.Helper()
	t.Cleanup(func() { instance.registered, instance.view, instance.blocks = false, frame.View{}, nil })
	Register(m)
}

func TestAllocIsAlignedAndBounded(t *testing.T) {
	reset(t, Module{Columns: []string{"kv.usage"}})
	for _, size := range []int{1, 63, 64, 65, 100_000} {
		p := alloc(size)
		if p == nil || uintptr(p)%frame.Align != 0 {
			t.Fatalf("alloc(%d) = %v", size, p)
		}
		block := instance.blocks[len(instance.blocks)-1]
		start := uintptr(unsafe.Pointer(unsafe.SliceData(block)))
		if uintptr(p) < start || uintptr(p)+uintptr(size) > start+uintptr(len(block)) {
			t.Errorf("alloc(%d) leaves its block", size)
		}
	}
	for _, size := range []int{0, -1, maxAlloc + 1} {
		if p := alloc(size); p != nil {
			t.Errorf("alloc(%d) = %v, want nil", size, p)
		}
	}
}

func TestConfigureReachesThePluginAndKeepsItsError(t *testing.T) {
	var got string
	reset(t, Module{Columns: []string{"kv.usage"}, Configure: func(c []byte) error {
		got = string(c)
		return errors.New(strings.Repeat("x", 2000))
	}})
	if code := configure([]byte(`{"a":1}`)); code != frame.CodeBadConfig || got != `{"a":1}` {
		t.Errorf("code %d, config %q", code, got)
	}
	if len(instance.lastError) != maxLastError {
		t.Errorf("last error of %d bytes", len(instance.lastError))
	}
}

func TestConfigureWithoutAFunctionIsFine(t *testing.T) {
	reset(t, Module{Columns: []string{"kv.usage"}})
	if code := configure([]byte("{}")); code != frame.CodeOK {
		t.Errorf("code %d", code)
	}
}

func TestBeginTakesOnlyTheFrameThatWasBound(t *testing.T) {
	reset(t, Module{Columns: []string{"kv.usage"}})
	l, err := abi.NewLayout(abi.LayoutSpec{Columns: []bool{true}, Capacity: 2})
	if err != nil {
		t.Fatal(err)
	}
	p, other := alloc(int(l.Size)), alloc(64)
	header := unsafe.Slice((*byte)(p), l.Size)
	l.PutHeader(header)
	l.PutCall(header, 2, 0, 0, false)
	if code := Begin(p); code != frame.CodeNotBound {
		t.Errorf("before bind: code %d", code)
	}
	if code := bind(p, 2); code != frame.CodeOK {
		t.Fatalf("bind: code %d", code)
	}
	if code := Begin(other); code != frame.CodeBadFrame {
		t.Errorf("another frame: code %d", code)
	}
	if code := Begin(p); code != frame.CodeOK || View().Len() != 2 {
		t.Errorf("code %d", code)
	}
}

func TestEndTellsAbstainFromErrors(t *testing.T) {
	reset(t, Module{Columns: []string{"kv.usage"}})
	for _, c := range []struct {
		err  error
		want int32
	}{
		{nil, frame.CodeOK},
		{fmt.Errorf("no data: %w", ErrAbstain), frame.CodeAbstain},
		{errors.New("broken"), frame.CodeInternal},
	} {
		for _, allocates := range []bool{false, true} {
			if got := End(c.err, allocates); got != c.want {
				t.Errorf("End(%v) = %d, want %d", c.err, got, c.want)
			}
		}
	}
	if string(instance.lastError) != "broken" {
		t.Errorf("last error %q", instance.lastError)
	}
}

func TestRegisterTwicePanics(t *testing.T) {
	reset(t, Module{Columns: []string{"kv.usage"}})
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	Register(Module{Columns: []string{"kv.usage"}})
}

func TestLeastMinorIsThatOfTheNames(t *testing.T) {
	reset(t, Module{Columns: []string{"kv.usage", "label.zone"}, Fields: []string{"config.k"}})
	if got := leastMinor(); got != 0 {
		t.Errorf("minor %d, want 0", got)
	}
}
