package catalog_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/core"
	"github.com/routerd/routerd/fleet"
)

// unwell is the health of workers that have never answered.
type unwell struct{}

func (unwell) Standing(context.Context, fleet.Record) (core.Lifecycle, []string) {
	return core.Incomplete, []string{"starting: not answered yet: health_refused"}
}

// An operator whose only worker refuses connections finds it in the log, with its
// address and the reason.
func TestAWorkerThatNeverAnswersIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	l := newLedger()
	r := catalog.New(catalog.Parts{Core: l, Listeners: l, Engines: l, Health: unwell{}}, slog.New(slog.NewTextHandler(&out, nil)))
	apply(t, r, record(t, 1))
	for range 3 {
		r.Bring(t.Context(), 1)
	}
	text := out.String()
	if strings.Count(text, "worker is not well") != 1 || !strings.Contains(text, "url=http://127.0.0.1:8001") || !strings.Contains(text, "health_refused") {
		t.Errorf("logged:\n%s", text)
	}
}
