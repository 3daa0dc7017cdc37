package selection

import (
	"context"

	"github.com/routerd/routerd/internal/httpapi"
)

// replicaSync refuses what needs other routers: nothing connects them.
func (s *Server) replicaSync(context.Context, *exchange) error {
	return &httpapi.Failure{
		Code: httpapi.CodeConflict, Message: "replica sync is disabled", Details: httpapi.Details{Step: "disabled"},
	}
}
