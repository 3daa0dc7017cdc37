// Command goguest is a small Go reactor for tests: maps, sorting, formatting, allocation and JSON.
package main

import (
	"encoding/json"
	"fmt"
	"sort"
	"unsafe"
)

var columns [5][1024]float64

// rp_score walks columns by raw pointers, as the Go SDK does.
//
//go:wasmexport rp_score
func score(n int32) float64 {
	prefill, overlap := unsafe.Pointer(&columns[0]), unsafe.Pointer(&columns[1])
	decode, active, out := unsafe.Pointer(&columns[2]), unsafe.Pointer(&columns[3]), unsafe.Pointer(&columns[4])
	for range n {
		cost := *(*float64)(prefill)/16 - *(*float64)(overlap)
		if cost < 0 {
			cost = 0
		}
		cost += *(*float64)(decode)
		cost += float64(0.5 * *(*float64)(active))
		*(*float64)(out) = -cost
		prefill, overlap = unsafe.Add(prefill, 8), unsafe.Add(overlap, 8)
		decode, active, out = unsafe.Add(decode, 8), unsafe.Add(active, 8), unsafe.Add(out, 8)
	}
	return columns[4][0]
}

type row struct {
	Name  string  `json:"name"`
	Score float64 `json:"score"`
}

//go:wasmexport rp_work
func work(n int32) int64 {
	rows := map[string]float64{}
	for i := range n {
		rows[fmt.Sprintf("worker-%d", i*7919%n)] = float64(i) / 3
	}
	var list []row
	for name, score := range rows {
		list = append(list, row{name, score})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	text, err := json.Marshal(list)
	if err != nil {
		return -1
	}
	var sum int64
	for _, c := range text {
		sum = sum*31 + int64(c)
	}
	return sum
}

//go:wasmexport rp_sum
func sum(n int32) float64 {
	total := 0.0
	for i := range n {
		total += float64(i) * 0.5
	}
	return total
}

func main() {}
