// Command goguest is a small Go reactor for tests: maps, sorting, formatting, allocation and JSON.
package main

import (
	"encoding/json"
	"fmt"
	"sort"
)

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
