package app

import (
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/api"
	"github.com/routerd/routerd/selection"
)

// SelectionWorkers is what the selection service keeps its workers with.
func SelectionWorkers(r *catalog.Reconciler, s *api.Source) selection.Workers {
	return selectionWorkers{catalog: r, source: s}
}
