package guest

import "unsafe"

//go:wasmimport routerd_v1 log
func importLog(level int32, p unsafe.Pointer, n int32)

//go:wasmimport routerd_v1 metric_add
func importMetricAdd(id int32, v float64)

//go:wasmimport routerd_v1 metric_set
func importMetricSet(id int32, v float64)

//go:wasmimport routerd_v1 trace
func importTrace(id int32, v float64)

func hostMetricAdd(id int, v float64) { importMetricAdd(int32(id), v) }
func hostMetricSet(id int, v float64) { importMetricSet(int32(id), v) }
func hostTrace(id int, v float64)     { importTrace(int32(id), v) }

func hostLog(level Level, text string) {
	importLog(int32(level), unsafe.Pointer(unsafe.StringData(text)), int32(min(len(text), 512)))
}
