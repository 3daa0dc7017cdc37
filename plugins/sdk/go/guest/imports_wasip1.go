package guest

import "unsafe"

//go:wasmimport routerd_v1 log
func importLog(level int32, p unsafe.Pointer, n int32)

func hostLog(level Level, text string) {
	importLog(int32(level), unsafe.Pointer(unsafe.StringData(text)), int32(min(len(text), 512)))
}
