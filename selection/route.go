package selection

import (
	"context"

	"github.com/valyala/fasthttp"
)

// bodyKind says what a route reads.
type bodyKind int

const (
	noBody bodyKind = iota
	jsonBody
)

// route is one row of the table.
type route struct {
	method  string
	pattern string // segments; {id} stands for any text, percent-encoded
	public  bool   // answers callers without the token
	body    bodyKind
	waits   bool // it may wait in the queue
	bare    bool // the body may be left out
	query   []param
	headers []param
	doc     string // one sentence or two
	in, out any    // a sample of the body and of the answer, for the documents
	status  []int  // of good answers; out is the body of each
	refused []int  // of errors
	handle  func(s *Server, ctx context.Context, x *exchange) error
}

// param is a query parameter or a header.
type param struct{ name, doc string }

// routes is the whole API. The order is that of the documents.
func routes() []route {
	const get, post, patch, del = fasthttp.MethodGet, fasthttp.MethodPost, fasthttp.MethodPatch, fasthttp.MethodDelete
	const ok, created = fasthttp.StatusOK, fasthttp.StatusCreated
	class := []param{{"x-dynamo-meta-policy-class", "class of the queue"}, {"x-routerd-class", "the same, where the former is not given"}}
	partition := []param{{"model_name", "only of this base model"}, {"routing_group", "only of this routing group"}}
	return []route{
		{
			method: post, pattern: "/select", waits: true, body: jsonBody, headers: class, in: selectBody{}, out: selectAnswer{}, status: []int{ok}, refused: []int{400, 404, 409, 422, 429, 500, 503}, handle: (*Server).doSelect,
			doc: "Says where a request should go and books nothing. With `selection_id` the decision is kept for a later `POST /reservations`. `advisory` answers at once, past the queue, with the load of the chosen rank.",
		},
		{
			method: post, pattern: "/select_and_reserve", waits: true, body: jsonBody, headers: class, in: bookBody{}, out: bookedAnswer{}, status: []int{ok}, refused: []int{400, 404, 409, 422, 429, 500, 503}, handle: (*Server).doSelectAndReserve,
			doc: "Selects and books in one step; without `selection_id` one is made. The session of the request is bound.",
		},
		{
			method: post, pattern: "/reservations", body: jsonBody, in: reserveBody{}, out: reservedAnswer{}, status: []int{created}, refused: []int{400, 404, 409, 422, 503}, handle: (*Server).reserve,
			doc: "Books the selection that was kept under `selection_id`, or, with `worker_id` and a prompt, that worker.",
		},
		{
			method: post, pattern: "/reservations/{id}/prefill_complete", body: jsonBody, bare: true, in: nothingBody{}, out: statusAnswer{}, status: []int{ok}, refused: []int{404, 422}, handle: (*Server).prefillComplete,
			doc: "Tells that the prompt has been prefilled; again, it changes nothing. The body may be empty.",
		},
		{
			method: post, pattern: "/reservations/{id}/output_block", body: jsonBody, in: outputBlockBody{}, out: statusAnswer{}, status: []int{ok}, refused: []int{400, 404, 422}, handle: (*Server).outputBlock,
			doc: "Tells that the answer has filled one more block; `decay_fraction` (0 to 1) is how much the request's own blocks still count for.",
		},
		{
			method: del, pattern: "/reservations/{id}", out: statusAnswer{}, status: []int{ok}, refused: []int{404}, handle: (*Server).free,
			doc: "Ends a reservation. A second call is 404.",
		},
		{
			method: post, pattern: "/workers", body: jsonBody, in: workerBody{}, out: workerAnswer{}, status: []int{created}, refused: []int{400, 409, 422, 503}, handle: (*Server).putWorker,
			doc: "Adds or replaces a worker, whole: fields that are left out are cleared. A worker that lacks something is taken, and not schedulable until it has it.",
		},
		{method: get, pattern: "/workers", query: partition, out: []workerAnswer{}, status: []int{ok}, refused: []int{400}, handle: (*Server).listWorkers, doc: "Lists the workers of all sources."},
		{
			method: patch, pattern: "/workers/{id}", body: jsonBody, in: workerPatch{}, out: workerAnswer{}, status: []int{ok}, refused: []int{400, 404, 409, 422, 503}, handle: (*Server).patchWorker,
			doc: "Changes the fields that the body has; null and absent fields stay as they are.",
		},
		{
			method: del, pattern: "/workers/{id}", out: workerAnswer{}, status: []int{ok}, refused: []int{400, 404, 409, 503}, handle: (*Server).deleteWorker,
			doc: "Removes a worker that was put by API and answers its record; its reservations end.",
		},
		{method: get, pattern: "/loads", query: partition, out: []partitionLoads{}, status: []int{ok}, refused: []int{400}, handle: (*Server).loads, doc: "Projected load of every schedulable rank, and what waits in the queue."},
		{
			method: post, pattern: "/potential_loads", body: jsonBody, in: lookupBody{}, out: []rankLoad{}, status: []int{ok}, refused: []int{400, 404, 422, 503}, handle: (*Server).potentialLoads,
			doc: "Projected load of every schedulable rank with the prompt booked on it.",
		},
		{
			method: post, pattern: "/overlap_scores", body: jsonBody, in: lookupBody{}, out: overlapAnswer{}, status: []int{ok}, refused: []int{400, 404, 422, 503}, handle: (*Server).overlapScores,
			doc: "What each schedulable rank holds of the prompt, in blocks by tier, and what the shared cache does.",
		},
		{
			method: post, pattern: "/query", body: jsonBody, in: queryBody{}, out: queryAnswer{}, status: []int{ok}, refused: []int{400, 404, 422}, handle: (*Server).query,
			doc: "Index-only: what each rank holds of a prompt of token ids, in tokens.",
		},
		{
			method: post, pattern: "/query_by_hash", body: jsonBody, in: queryByHashBody{}, out: queryAnswer{}, status: []int{ok}, refused: []int{400, 404, 422}, handle: (*Server).queryByHash,
			doc: "Index-only: the same for block hashes that the caller computed.",
		},
		{method: get, pattern: "/dump", out: map[string]dumpedPartition{}, status: []int{ok}, refused: nil, handle: (*Server).dump, doc: "The whole index, from which a starting peer restores its own (`index.peers`)."},
		{method: get, pattern: "/health", public: true, out: statusAnswer{}, status: []int{ok}, handle: (*Server).health, doc: "Answers while the process lives."},
		{method: get, pattern: "/ready", out: readyAnswer{}, status: []int{ok, fasthttp.StatusServiceUnavailable}, handle: (*Server).ready, doc: "Whether any worker is schedulable, and all workers; 503 while none is."},
		{method: post, pattern: "/replica_sync/register_peer", body: jsonBody, in: peerBody{}, out: nil, refused: []int{409}, handle: (*Server).replicaSync, doc: "Registers a peer for replica synchronisation, which is not configured: 409 `disabled`."},
		{method: post, pattern: "/replica_sync/deregister_peer", body: jsonBody, in: peerBody{}, out: nil, refused: []int{409}, handle: (*Server).replicaSync, doc: "As above."},
		{method: get, pattern: "/replica_sync/peers", out: nil, refused: []int{409}, handle: (*Server).replicaSync, doc: "As above."},
		{method: get, pattern: "/openapi.json", out: map[string]any{}, status: []int{ok}, handle: (*Server).showOpenAPI, doc: "This API as OpenAPI 3.1."},
	}
}
