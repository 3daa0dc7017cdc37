package abi

import (
	"encoding/json"
	"math"
)

// ManifestABI is what the field abi of a manifest must be in this version.
const ManifestABI = "routerd.policy/v1"

// Limits of a manifest.
const (
	MaxManifestBytes = 64 << 10
	MaxSchemaNodes   = 1000
	MaxMetrics       = 16
	MaxTraces        = 16
	// MaxTracesPerDecision bounds the values that all stages of one decision put
	// down for its record.
	MaxTracesPerDecision = 8
	DefaultPages         = 64  // memory_pages unless given
	DefaultPagesGo       = 256 // the same where sdk.name is SDKGo
	MaxPages             = 1024
	DefaultMaxRows       = 1024
	MaxFuelBase          = 1_000_000_000
	MaxFuelPerRow        = 1_000_000
	maxMinor             = 65_535
	maxColumnsInTable    = maxLayoutColumns
)

// SDKGo is the sdk.name of the Go SDK.
const SDKGo = "go"

// Kind is what a module does in a policy.
type Kind string

// The kinds.
const (
	KindScorer     Kind = "scorer"
	KindFilter     Kind = "filter"
	KindLoraScorer Kind = "lora-scorer"
	KindPicker     Kind = "picker"
	KindPolicy     Kind = "policy"
)

// Kinds lists every kind.
func Kinds() []Kind {
	return []Kind{KindScorer, KindFilter, KindLoraScorer, KindPicker, KindPolicy}
}

// Export is the name of the function that a module of this kind exports.
func (k Kind) Export() string {
	switch k {
	case KindScorer:
		return "rp_score"
	case KindFilter:
		return "rp_filter"
	case KindLoraScorer:
		return "rp_lora"
	case KindPicker:
		return "rp_pick"
	case KindPolicy:
		return "rp_policy"
	default:
		return ""
	}
}

// StateKind says whether a module keeps anything from call to call.
type StateKind string

// The kinds of state.
const (
	StateNone     StateKind = "none"     // any instance may serve any call
	StateInstance StateKind = "instance" // lossy state, one pool per partition
)

// Manifest is what a module says about itself. ParseManifest fills every
// default, so that a zero value there is a given zero.
type Manifest struct {
	ABI           string
	Minor         int
	Name          string
	Version       string
	Description   string
	License       string
	Source        string
	Kinds         []Kind
	Columns       []ManifestColumn
	RequestFields []string
	ConfigSchema  json.RawMessage // nil = the module takes no config
	Limits        Limits
	State         StateKind
	Deterministic bool     // true unless the manifest says otherwise
	Imports       []string // bare names of module routerd_v1
	ScoreRange    *Range
	Monotonic     []Monotonic
	Metrics       []Metric
	Traces        []string
	SDK           SDK
	Ext           json.RawMessage
}

// ManifestColumn is one column that a module reads.
type ManifestColumn struct {
	Name     string
	Required bool    // a host that does not know the column refuses the module
	Missing  float64 // what the host writes for a stale, invalid or unknown signal; NaN = the canonical NaN
}

// MissingNaN tells whether the module asked for NaN instead of a number.
func (c ManifestColumn) MissingNaN() bool { return math.IsNaN(c.Missing) }

// Limits is what a module asks for. The host grants at most the operator's.
type Limits struct {
	MemoryPages uint32 // of 64 KiB
	FuelBase    uint64
	FuelPerRow  uint64
	MaxRows     int
}

// Range bounds scores, both ends included.
type Range struct{ Min, Max float64 }

// Monotonic promises how a score moves with one column.
type Monotonic struct {
	Column    string
	Direction Direction
}

// Direction is how a score moves when a column's value rises.
type Direction string

// The directions.
const (
	Increasing Direction = "increasing"
	Decreasing Direction = "decreasing"
)

// Metric is one metric that the module feeds. Its number for metric_add and
// metric_set is its place in the list.
type Metric struct {
	Name string
	Type MetricType
	Help string
}

// MetricType is how a metric is fed.
type MetricType string

// The metric types.
const (
	MetricCounter MetricType = "counter"
	MetricGauge   MetricType = "gauge"
)

// SDK names what the module was written with.
type SDK struct{ Name, Version string }

// HasKind tells whether the module declares k.
func (m *Manifest) HasKind(k Kind) bool {
	for _, have := range m.Kinds {
		if have == k {
			return true
		}
	}
	return false
}
