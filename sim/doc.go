// Package sim holds simulated inference engines: small HTTP servers that speak
// OpenAI's API the way vLLM 0.33 does, keep a block cache with LRU eviction,
// and publish KV events over real ZMQ sockets with a replay endpoint. The demo,
// the tests and the benchmarks use them in place of engines with GPUs.
//
// The package owns what an engine owns: the tokenizer, the chat template, the
// block cache of each rank, the engine's block hashes and the event stream. It
// shares no code with the router's own hashing and indexing, so that a mistake
// there cannot hide behind the same mistake here.
//
// # Tokenizer and chat template
//
// Text is split by the pattern `\w+|\s+|.` with RE2's ASCII classes: a run of
// [0-9A-Za-z_], a run of [\t\n\f\r ], or else one character (a broken UTF-8
// byte counts as one character). The id of a piece is 256 + XXH3-64(piece) mod
// 100,000. A message becomes "<|role|>" followed by its text; the texts of
// content parts follow each other in order, parts without text and null content
// add nothing. add_generation_prompt (true unless it is switched off) appends
// "<|assistant|>". Nothing is added elsewhere, so the ids of a conversation
// begin with the ids of each of its own beginnings.
//
// # Block cache
//
// A block is a full run of BlockSize tokens together with everything before it.
// Its key in a plain map is that whole token path, prefixed by the adapter's
// name. The engine hash is SHA-256(parent digest, tokens as little-endian
// uint32, adapter name), where the root digest is SHA-256("sim" and the
// engine's name); on the wire it is the last 8 bytes as an unsigned integer or
// the whole 32 bytes. A running request holds its blocks; blocks that nobody
// holds are evicted, least recently used first and the tail of a request before
// its head. When all blocks are held, new ones are computed but not cached.
//
// # Time
//
// A request waits in order for one of the rank's slots, then pays
// PrefillPerToken for each prompt token that is not cached and DecodePerToken
// for each token it makes. One HTTP request takes one slot: its prompts run one
// after another, the answers of one prompt (n) step together.
//
// The answer's text depends on the prompt, Config.Seed, the request's seed and the
// choice's number only. Without max_tokens it ends by itself (finish_reason
// "stop"); ignore_eos with max_tokens gives exactly that many tokens. Each token
// is one event of a stream and one flush. Which engine answered is told by the
// header X-Sim-Engine and by system_fingerprint.
//
// # Adapters
//
// With AdapterUpdates the engine loads and unloads LoRA adapters while it runs:
// POST /v1/load_lora_adapter and /v1/unload_lora_adapter as vLLM with
// VLLM_ALLOW_RUNTIME_LORA_UPDATING, POST /load_lora_adapter and
// /unload_lora_adapter as SGLang. A load takes AdapterLoad and ends well also when
// its client has left; until then, and after an unload, a request that names the
// adapter is answered 404. A restart forgets what was loaded by API. The stats
// count adapters that were unloaded while a request used them.
//
// # Faces
//
// With Face the engine answers about itself as another engine or release does: the
// routes that exist (/version, /server_info, /kv_event_sources), the owner of its
// models, the names and labels of its metrics and, for SGLang 0.5.23 with
// LoadListen, a load socket of three frames. Requests, tokens and events stay as
// they are.
//
// # Faults
//
// POST /sim/faults takes one order, for example
//
//	{"kind":"stall","count":3}                     the next 3 generation requests get no answer
//	{"kind":"stall","after_chunks":2}              one stream stops after 2 events
//	{"kind":"reset","after_chunks":2}              one stream's connection is closed; 0: before any byte
//	{"kind":"error","after_chunks":2}              one stream ends with an error event and [DONE]
//	{"kind":"status","status":429,"headers":{"Retry-After":"3"},"body":{}}
//	{"kind":"delay","delay":"150ms","path":"/tokenize"}
//	{"kind":"drop_events","count":2,"rank":0}      batches take a number but are not sent
//	{"kind":"drop_replies","mode":"holes"}         or "silent" (default), "no_end"
//	{"kind":"reset_prefix_cache","rank":0}         at once; without rank on all
//
// count is 1 by default; path is both generation routes by default. GET lists the
// orders that are not used up, DELETE forgets them and lets held requests go on.
// POST /sim/restart does to others what a crash and a new start do. GET
// /sim/stats counts requests and tells when clients that left were noticed; GET
// /sim/blocks lists the hashes of the cached blocks.
//
// # Goroutines
//
// Engine.Start starts the HTTP server (a goroutine per connection), one
// goroutine that notices clients which have gone, and, with events on, one that
// owns every ZMQ socket. Close ends all of them and waits.
// Lock order: rank.mu, then publisher.mu or faults.mu; no lock is held across a
// socket call.
package sim
