package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/routerd/routerd/catalog"
	"github.com/routerd/routerd/fleet"
)

// Options change how engines are asked; the zero value is right for production.
type Options struct {
	// Timeout bounds one answer, its body included; 0 means 2 s. The places are
	// asked in at most two rounds, so an Ask takes at most twice as long.
	Timeout time.Duration
}

const defaultTimeout = 2 * time.Second

// Asker asks engines over HTTP what they are. It is safe for concurrent use.
type Asker struct {
	http    *http.Client
	timeout time.Duration
}

// New makes an Asker with connections of its own.
func New(o Options) *Asker {
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	return &Asker{timeout: o.Timeout, http: NewClient(o.Timeout, 0)} // an engine is asked rarely
}

// The places where engines tell something.
const (
	modelsPath  = "/v1/models"
	versionPath = "/version"
	infoPath    = "/server_info"
	oldInfoPath = "/get_server_info"
	sourcesPath = "/kv_event_sources"
	metricsPath = "/metrics"
)

// answers are what an engine said, and per place why it said nothing.
type answers struct {
	models  []card
	version string
	info    serverInfo
	sources map[int]publisher
	metrics metrics
	silence map[string]error
}

// errLeft is why TensorRT-LLM's statistics are not read for a record that says all that
// they tell.
var errLeft = errors.New("left to others, who have only what nobody else has read")

// Ask asks the engine at rec.URL for all that it tells of itself. rec.Engine is a
// hint for what the answers cannot tell apart: llm-d's simulator speaks as vLLM.
// The facts repeat what the answers say, whatever else the record says; KVEvents
// and the like hold the ranks from rec.DPStart on. The error says that nobody
// answered HTTP there.
func (a *Asker) Ask(ctx context.Context, rec fleet.Record) (catalog.Facts, error) {
	host, err := hostOf(rec.URL)
	if err != nil {
		return catalog.Facts{}, fmt.Errorf("ask engine: %w", err)
	}
	said := answers{silence: map[string]error{}}
	places := map[string]func(io.Reader) error{
		modelsPath:                       said.readModels,
		versionPath:                      said.readVersion,
		infoPath + "?config_format=json": said.readInfo,
		sourcesPath:                      said.readSources,
		metricsPath:                      said.metrics.read,
	}
	if rec.Engine == trtllm && rec.BlockSize > 0 && rec.TotalKVBlocks > 0 {
		delete(places, metricsPath)
		said.silence[metricsPath] = errLeft
	}
	answered, err := a.round(ctx, rec.URL, &said, places)
	if !answered {
		return catalog.Facts{}, fmt.Errorf("ask engine: nobody answers HTTP there: %w", err)
	}
	if said.info.empty() && said.mayBeSGLang() {
		_, _ = a.round(ctx, rec.URL, &said, map[string]func(io.Reader) error{oldInfoPath: said.readInfo}) // said.silence has the reason
	}
	return said.facts(rec, host), nil
}

// round asks all places at once. answered is whether one of them spoke HTTP, err
// what an other place said.
func (a *Asker) round(ctx context.Context, base string, said *answers, places map[string]func(io.Reader) error) (answered bool, err error) {
	var mu sync.Mutex // guards answered, err and said.silence
	var all sync.WaitGroup
	for place, read := range places {
		all.Go(func() {
			spoke, why := a.get(ctx, base, place, read)
			mu.Lock()
			defer mu.Unlock()
			answered = answered || spoke
			if why != nil {
				said.silence[pathOf(place)] = why
			}
			if !spoke {
				err = why
			}
		})
	}
	all.Wait()
	if err == nil && !answered {
		err = errors.New("no place was asked")
	}
	return answered, err
}
