package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/valyala/fasthttp"
)

// adapter is a loaded LoRA adapter.
type adapter struct {
	name, path string
}

// adapterTable holds the loaded adapters and the numbers that events give them.
// Safe for concurrent use.
type adapterTable struct {
	mu       sync.Mutex     // guards all fields
	ids      map[string]int // of each name that was ever loaded, the newest number
	last     int            // number given
	loaded   []adapter      // in order of loading
	loading  map[string]bool
	unloaded uint64 // while a request used it
}

func newAdapterTable(names []string) *adapterTable {
	t := &adapterTable{ids: map[string]int{}, loading: map[string]bool{}}
	t.reset(names)
	return t
}

// reset loads the adapters of the start and forgets all others.
func (t *adapterTable) reset(names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.loaded = nil
	for _, name := range names {
		t.put(adapter{name, "/adapters/" + name})
	}
}

// put runs under mu. An adapter that is loaded again gets a new number.
func (t *adapterTable) put(a adapter) {
	t.last++
	t.ids[a.name] = t.last
	t.loaded = append(t.loaded, a)
}

func (t *adapterTable) list() []adapter {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.loaded)
}

func (t *adapterTable) has(name string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.index(name) >= 0
}

func (t *adapterTable) index(name string) int {
	return slices.IndexFunc(t.loaded, func(a adapter) bool { return a.name == name })
}

// id is the adapter's number in events.
func (t *adapterTable) id(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ids[name]
}

// claim begins to load an adapter; finish ends it. room is how many the engine
// holds, 0 for any number.
func (t *adapterTable) claim(name string, room int) *apiError {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.index(name) >= 0 || t.loading[name]:
		return invalidInput("The lora adapter '%s' has already been loaded.", cut(name))
	case room > 0 && len(t.loaded)+len(t.loading) >= room:
		return invalidInput("%d adapters are loaded; allowed: at most %d.", len(t.loaded), room)
	}
	t.loading[name] = true
	return nil
}

// finish ends a claim; a nil adapter was not loaded.
func (t *adapterTable) finish(name string, a *adapter) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.loading, name)
	if a != nil {
		t.put(*a)
	}
}

func (t *adapterTable) remove(name string) *apiError {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := t.index(name)
	if i < 0 {
		return notFound("", "The lora adapter '%s' cannot be found.", cut(name))
	}
	t.loaded = slices.Delete(t.loaded, i, i+1)
	return nil
}

func (t *adapterTable) countInUse() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unloaded++
}

func (t *adapterTable) unloadedInUse() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unloaded
}

func invalidInput(format string, args ...any) *apiError {
	return &apiError{fasthttp.StatusBadRequest, "InvalidUserInput", "", fmt.Sprintf(format, args...)}
}

// adapterOrder is the body of all four routes.
type adapterOrder struct {
	Name string `json:"lora_name"`
	Path string `json:"lora_path"`
}

func readAdapterOrder(x *exchange) (adapterOrder, *apiError) {
	var o adapterOrder
	if err := json.Unmarshal(x.PostBody(), &o); err != nil {
		return o, decodeError(err)
	}
	return o, nil
}

// load takes AdapterLoad and goes on when the client has left, as in an engine.
func (e *Engine) load(o adapterOrder, room int) *apiError {
	switch err := modelName("lora_name", o.Name); {
	case o.Name == "" || o.Path == "":
		return invalidInput("Both 'lora_name' and 'lora_path' must be provided.")
	case err != nil:
		return invalidInput("%v", err)
	case o.Name == e.cfg.Model:
		return invalidInput("The name '%s' is the model's.", cut(o.Name))
	}
	if err := e.adapters.claim(o.Name, room); err != nil {
		return err
	}
	if err := pause(e.era(), e.cfg.AdapterLoad); err != nil {
		e.adapters.finish(o.Name, nil)
		return &apiError{fasthttp.StatusInternalServerError, "InternalServerError", "", "Loading was cut off."}
	}
	e.adapters.finish(o.Name, &adapter{o.Name, o.Path})
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// unload takes the adapter from new requests at once; running ones go on.
func (e *Engine) unload(o adapterOrder) *apiError {
	if o.Name == "" {
		return invalidInput("'lora_name' must be provided.")
	}
	if err := e.adapters.remove(o.Name); err != nil {
		return err
	}
	for _, r := range e.ranks {
		if s := r.state(); slices.Contains(s.running, o.Name) || slices.Contains(s.waiting, o.Name) {
			e.adapters.countInUse()
			break
		}
	}
	return nil
}

// loadAdapter serves POST /v1/load_lora_adapter as vLLM does.
func (e *Engine) loadAdapter(x *exchange) {
	o, err := readAdapterOrder(x)
	if err == nil {
		err = e.load(o, 0)
	}
	x.vllmAdapter(err, "Success: LoRA adapter '%s' added successfully.", o.Name)
}

// unloadAdapter serves POST /v1/unload_lora_adapter as vLLM does.
func (e *Engine) unloadAdapter(x *exchange) {
	o, err := readAdapterOrder(x)
	if err == nil {
		err = e.unload(o)
	}
	x.vllmAdapter(err, "Success: LoRA adapter '%s' removed successfully.", o.Name)
}

func (x *exchange) vllmAdapter(err *apiError, success, name string) {
	if err != nil {
		x.fail(err)
		return
	}
	x.Response.Header.SetContentType("text/plain; charset=utf-8")
	x.Response.SetBodyString(fmt.Sprintf(success, name))
}

// loadAdapterSGLang serves POST /load_lora_adapter as SGLang does, whose engines
// refuse more than MaxAdapters.
func (e *Engine) loadAdapterSGLang(x *exchange) {
	o, err := readAdapterOrder(x)
	if err == nil {
		err = e.load(o, e.cfg.MaxAdapters)
	}
	e.sglangAdapter(x, err)
}

// unloadAdapterSGLang serves POST /unload_lora_adapter as SGLang does.
func (e *Engine) unloadAdapterSGLang(x *exchange) {
	o, err := readAdapterOrder(x)
	if err == nil {
		err = e.unload(o)
	}
	e.sglangAdapter(x, err)
}

func (e *Engine) sglangAdapter(x *exchange, err *apiError) {
	body := struct {
		Success bool              `json:"success"`
		Error   string            `json:"error_message"`
		Loaded  map[string]string `json:"loaded_adapters"`
	}{Success: err == nil, Loaded: map[string]string{}}
	for _, a := range e.adapters.list() {
		body.Loaded[a.name] = a.path
	}
	status := fasthttp.StatusOK
	if err != nil {
		body.Error, status = err.message, fasthttp.StatusBadRequest
	}
	x.reply(status, body)
}
