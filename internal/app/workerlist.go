package app

import (
	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/catalog/adapters"
	"github.com/routerd/routerd/prompt"
)

// tokenizeUnsupported is the reason of a worker that serves but whose engine
// does not tokenise messages: its chats are routed on load alone.
const tokenizeUnsupported = "tokenize_unsupported"

// adapterFailed begins the reason of a worker that serves but whose engine did not
// load or unload a managed adapter; it is tried again.
const adapterFailed = "adapter_failed: "

// workerList is the catalog's workers with what the tokenizer and the manager of
// adapters know of them.
type workerList struct {
	catalog   *catalog.Reconciler
	tokenizer *prompt.Tokenizer
	adapters  *adapters.Manager
}

var _ admin.WorkerList = workerList{}

// Workers lists all workers by id.
func (l workerList) Workers() []catalog.View {
	views, managed := l.catalog.Workers(), l.adapters.Adapters()
	for i := range views {
		l.add(&views[i], managed)
	}
	return views
}

// Worker finds a worker by id or name.
func (l workerList) Worker(ref string) (catalog.View, bool) {
	v, ok := l.catalog.Worker(ref)
	if ok {
		l.add(&v, l.adapters.Adapters())
	}
	return v, ok
}

func (l workerList) add(v *catalog.View, managed []adapters.View) {
	if l.tokenizer.Refusing(v.Name) {
		v.Reasons = append(v.Reasons, tokenizeUnsupported)
	}
	for _, a := range managed {
		if a.Worker == v.Name && a.Reason != "" {
			v.Reasons = append(v.Reasons, adapterFailed+a.Adapter+": "+a.Reason)
		}
	}
}
