package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/routerd/routerd/core"
)

// NewSelectionMetrics is the router's telemetry of its decisions.
func NewSelectionMetrics(reg prometheus.Registerer) core.Telemetry { return newSelectionMetrics(reg) }
