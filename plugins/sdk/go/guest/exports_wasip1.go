package guest

import (
	"runtime"
	"unsafe"
)

//go:wasmexport rp_abi_v1
func rpABIv1() int32 { return leastMinor() }

//go:wasmexport rp_alloc
func rpAlloc(size int32) unsafe.Pointer { return alloc(int(size)) }

//go:wasmexport rp_configure
func rpConfigure(p unsafe.Pointer, n int32) int32 {
	if n < 0 {
		n = 0
	}
	return configure(unsafe.Slice((*byte)(p), n))
}

//go:wasmexport rp_bind
func rpBind(p unsafe.Pointer, capacity int32) int32 { return bind(p, int(capacity)) }

//go:wasmexport rp_last_error
func rpLastError() int64 {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(instance.lastError)))
	return int64(p)<<32 | int64(len(instance.lastError))
}

//go:wasmexport rp_idle
func rpIdle() { runtime.GC() }
