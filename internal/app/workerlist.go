package app

import (
	"github.com/routerd/routerd/admin"
	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/prompt"
)

// tokenizeUnsupported is the reason of a worker that serves but whose engine
// does not tokenise messages: its chats are routed on load alone.
const tokenizeUnsupported = "tokenize_unsupported"

// workerList is the catalog's workers with what the tokenizer knows of them.
type workerList struct {
	catalog   *catalog.Reconciler
	tokenizer *prompt.Tokenizer
}

var _ admin.WorkerList = workerList{}

// Workers lists all workers by id.
func (l workerList) Workers() []catalog.View {
	views := l.catalog.Workers()
	for i := range views {
		l.add(&views[i])
	}
	return views
}

// Worker finds a worker by id or name.
func (l workerList) Worker(ref string) (catalog.View, bool) {
	v, ok := l.catalog.Worker(ref)
	if ok {
		l.add(&v)
	}
	return v, ok
}

func (l workerList) add(v *catalog.View) {
	if l.tokenizer.Refusing(v.Name) {
		v.Reasons = append(v.Reasons, tokenizeUnsupported)
	}
}
