// Package engine finds out from an engine's own HTTP answers what it is: kind and
// version, models and adapters, KV block size and capacity, data-parallel ranks,
// and where it publishes KV events, replays them and reports its load. It knows
// vLLM, SGLang, llm-d's simulator and TensorRT-LLM, by what each release tells:
//
//	/v1/models         kind, models, adapters
//	/version           vLLM's version
//	/server_info       SGLang's arguments, capacity and sockets; vLLM's in its developer mode
//	/get_server_info   the same by SGLang's older name
//	/kv_event_sources  vLLM's event sockets by rank, resolved
//	/metrics           block size, capacity and ranks
//
// TensorRT-LLM's /metrics are statistics that only their first reader gets: each
// question takes them from whoever else reads them, and finds none after another
// reader. It is not asked for them when its record names the engine and says
// block_size and total_kv_blocks, which is all that they tell.
//
// Invariants: an answer is foreign: it is bounded, read without trust, and what is
// out of a record's range counts as not told. Nothing is guessed: a field that no
// answer has is listed in Facts.Untold with the places where it was looked for.
// Nothing is kept between two questions.
//
// Ask starts one goroutine for each place and waits for all of them.
//
//	facts, err := engine.New(engine.Options{}).Ask(ctx, record)
package engine
