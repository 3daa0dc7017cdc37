// Package exchange is what the processes and the plugin of the comparison say to
// each other. It uses nothing but the standard library, since the plugin is
// built with it.
package exchange

import (
	"hash/fnv"
	"math"
)

// Table is a table of candidates as one process hands it to another.
type Table struct {
	Rows    int                  `json:"rows"`
	Seed    uint64               `json:"seed"`
	Fields  map[string]float64   `json:"fields"`
	Columns map[string][]float64 `json:"columns"`
}

// Request is what the Extism plugin reads: the request's fields, the
// configuration and an object a candidate.
type Request struct {
	Blocks     float64     `json:"isl_blocks"`
	BlockSize  float64     `json:"block_size"`
	Config     Config      `json:"config"`
	Candidates []Candidate `json:"candidates"`
}

// Config is the configuration of kv-aware.
type Config struct {
	PrefillLoadScale    float64 `json:"prefill_load_scale"`
	OverlapCredit       float64 `json:"overlap_credit"`
	CreditDecay         float64 `json:"credit_decay"`
	ActiveRequestWeight float64 `json:"active_request_weight"`
	HostWeight          float64 `json:"host_weight"`
	DiskWeight          float64 `json:"disk_weight"`
	SharedWeight        float64 `json:"shared_weight"`
}

// DefaultConfig is what the product takes where nothing is set.
func DefaultConfig() Config {
	return Config{PrefillLoadScale: 1, OverlapCredit: 1, HostWeight: 0.75, DiskWeight: 0.25, SharedWeight: 0.5}
}

// Candidate is one row: the columns that kv-aware reads.
type Candidate struct {
	Device           float64 `json:"kv.overlap_device"`
	Host             float64 `json:"kv.overlap_host"`
	Disk             float64 `json:"kv.overlap_disk"`
	Shared           float64 `json:"kv.overlap_shared"`
	Prefill          float64 `json:"load.prefill_tokens"`
	PotentialPrefill float64 `json:"load.potential_prefill_tokens"`
	PotentialDecode  float64 `json:"load.potential_decode_blocks"`
	Active           float64 `json:"load.active_requests"`
	Preference       float64 `json:"taint.preference"`
}

// Response is what the Extism plugin answers: a score a candidate.
type Response struct {
	Scores []float64 `json:"scores"`
}

// Digest is one number for the bits of many.
func Digest(values []float64) uint64 {
	h := fnv.New64a()
	for _, v := range values {
		bits := math.Float64bits(v)
		var b [8]byte
		for i := range b {
			b[i] = byte(bits >> (8 * i))
		}
		h.Write(b[:])
	}
	return h.Sum64()
}
