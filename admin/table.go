package admin

import (
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/routerd/routerd/core/policy"
	"github.com/routerd/routerd/fleet"
)

// routes is the whole API. The order is that of the documents.
func routes(metricsPublic bool) []route {
	return slices.Concat(moduleRoutes(), policyRoutes(), fleetRoutes(), processRoutes(metricsPublic))
}

func moduleRoutes() []route {
	const get, put, del = fasthttp.MethodGet, fasthttp.MethodPut, fasthttp.MethodDelete
	const ok, created, none = fasthttp.StatusOK, fasthttp.StatusCreated, fasthttp.StatusNoContent
	return []route{
		{method: get, pattern: "/v1/modules", out: moduleList{}, status: []int{ok}, handle: (*Server).listModules, doc: "Lists the stored modules by name, with the source that each name belongs to, and how the module directory stands."},
		{
			method: put, pattern: "/v1/modules/{name}", body: moduleBody, in: []byte{}, out: moduleView{}, status: []int{created, ok}, handle: (*Server).putModule,
			query: []param{
				{"sha256", "the digest that the bytes must have, 64 hexadecimal digits with or without \"sha256:\""},
				{"dry_run", "true takes the module through the whole load pipeline and keeps nothing"},
			},
			doc: "Takes a module (the body, at most 8 MiB) through the load pipeline and then stores it under the name; 200 when the name has these bytes already or nothing is stored. `checked` is `configured`, or `load` where the module has no default configuration: then setting it up and the self-test are left to the policy.",
		},
		{method: get, pattern: "/v1/modules/{name}", out: moduleView{}, status: []int{ok}, handle: (*Server).showModule, doc: "Describes a module."},
		{method: del, pattern: "/v1/modules/{name}", status: []int{none}, handle: (*Server).deleteModule, doc: "Removes a module; one that a kept policy revision uses, or that is from the module directory, is refused."},
	}
}

func policyRoutes() []route {
	const get, put, post, del = fasthttp.MethodGet, fasthttp.MethodPut, fasthttp.MethodPost, fasthttp.MethodDelete
	const ok, created, none = fasthttp.StatusOK, fasthttp.StatusCreated, fasthttp.StatusNoContent

	return []route{
		{method: get, pattern: "/v1/policies", out: policyList{}, status: []int{ok}, handle: (*Server).listPolicies, doc: "Lists the policies by name, with their revisions but not their specifications."},
		{
			method: put, pattern: "/v1/policies/{name}", body: jsonBody, in: policy.Spec{}, out: revisionAnswer{}, status: []int{created, ok}, handle: (*Server).putPolicy,
			query: []param{
				{"dry_run", "true keeps nothing and tries the specification on recorded decisions"},
				{"decisions", "with dry_run: on how many of the last recorded decisions of the policy, or of all where it has no active revision, 0 to 1024; 256 unless given"},
				{"reason", "why, for the history: at most 256 printable characters"},
			},
			doc: "Makes a revision: pins, compiles and self-tests every module. It decides nothing until activated. The same specification again is 200 and the same number. `warnings` tell what is allowed and probably not meant. " +
				"The `trial` of a dry run compares its picks with those of the active revision, the `base`: `regret` is what they cost by the base's totals, `decisive` counts decisions that fall otherwise without the scorer, `lacking` names columns that were not recorded.",
		},
		{method: get, pattern: "/v1/policies/{name}", out: policyView{}, status: []int{ok}, handle: (*Server).showPolicy, doc: "Describes a policy with the specifications of its revisions, what runs beside the active one, the limits of its modules and its last 100 changes."},
		{
			method: del, pattern: "/v1/policies/{name}", query: []param{{"reason", "why, for the log: at most 256 printable characters"}}, status: []int{none}, handle: (*Server).deletePolicy,
			doc: "Removes a policy with its revisions and its history. `default`, and one that `routing.rules`, `routing.default`, `models` or `policies` of the configuration name, is a `conflict` that says where, step `in_use`.",
		},
		{
			method: post, pattern: "/v1/policies/{name}/activate", body: jsonBody, in: activateBody{}, out: activeAnswer{}, status: []int{ok}, handle: (*Server).activatePolicy,
			doc: "Makes a kept revision the active one: no decision that starts after the answer uses another. In this body and those of the four below, `reason` (at most 256 printable characters) is why, for the history. `warnings` tell of a revision that decides now and has tripped before: it gets another chance.",
		},
		{
			method: post, pattern: "/v1/policies/{name}/shadow", body: jsonBody, in: shadowBody{}, out: rolloutAnswer{}, status: []int{ok}, handle: (*Server).shadowPolicy,
			doc: "Lets a kept revision decide on the side, for nobody, on a `sample` (above 0 to 1; 1 unless given) of the active revision's decisions; the same revision again changes the sample. `revision` 0 ends the shadow.",
		},
		{
			method: post, pattern: "/v1/policies/{name}/canary", body: jsonBody, in: canaryBody{}, out: rolloutAnswer{}, status: []int{ok}, handle: (*Server).canaryPolicy,
			doc: "Lets a kept revision decide for `percent` (0 to 100) of the requests, drawn `by` \"request\" (unless given) or \"session\", and for those whose `header`, one of `plugins.headers`, has that value; the same revision again changes the share. " +
				"One that trips ends by itself. `revision` 0 ends the canary.",
		},
		{
			method: post, pattern: "/v1/policies/{name}/promote", body: jsonBody, in: promoteBody{}, out: activeAnswer{}, status: []int{ok}, handle: (*Server).promotePolicy,
			doc: "Activates the revision of the canary, or else of the shadow; both end. The body may be empty. Without either: `conflict`, step `no_rollout`.",
		},
		{
			method: post, pattern: "/v1/policies/{name}/rollback", body: jsonBody, in: rollbackBody{}, out: activeAnswer{}, status: []int{ok}, handle: (*Server).rollbackPolicy,
			doc: "Ends the canary that runs; without one, or with `to`, activates the revision that was active before, or the kept revision `to`. The body may be empty. With nothing to go back to: `conflict`, step `no_history`. A revision that has tripped before is activated all the same, with a warning `tripped_before`.",
		},
	}
}

func fleetRoutes() []route {
	const get, put, post, del = fasthttp.MethodGet, fasthttp.MethodPut, fasthttp.MethodPost, fasthttp.MethodDelete
	const ok, created, none = fasthttp.StatusOK, fasthttp.StatusCreated, fasthttp.StatusNoContent
	return []route{
		{method: get, pattern: "/v1/workers", out: workerList{}, status: []int{ok}, handle: (*Server).listWorkers, doc: "Lists the workers of all sources by id, with the load, the cache and the event stream of each rank. `reasons` are why one is not ready, then what keeps requests from its ranks; `untold` is what its engine did not tell."},
		{
			method: put, pattern: "/v1/workers/{ref}", body: jsonBody, in: fleet.Record{}, out: Worker{}, status: []int{created, ok}, handle: (*Server).putWorker,
			doc: "Adds or replaces, whole, a worker by id or name, and answers after one attempt to make it ready.",
		},
		{method: get, pattern: "/v1/workers/{ref}", out: Worker{}, status: []int{ok}, handle: (*Server).showWorker, doc: "Describes a worker by id or name."},
		{method: del, pattern: "/v1/workers/{ref}", status: []int{none}, handle: (*Server).deleteWorker, doc: "Removes a worker that was put by API."},
		{
			method: post, pattern: "/v1/workers/{ref}/drain", body: jsonBody, in: drainBody{}, out: Worker{}, status: []int{ok}, handle: (*Server).drainWorker,
			doc: "Takes a worker of any source out for new requests; those that it has may finish for `timeout` (10m unless given, at most 24h), then they count no more. It is remembered over a restart. The body may be empty.",
		},
		{
			method: del, pattern: "/v1/workers/{ref}/drain", out: Worker{}, status: []int{ok}, handle: (*Server).undrainWorker,
			doc: "Lets a worker have new requests again; one that does not drain stays as it is.",
		},
		{
			method: get, pattern: "/v1/sources", out: sourceList{}, status: []int{ok}, handle: (*Server).listSources,
			doc: "Lists the sources of workers: whether each is watched, and why its list is not taken or not had.",
		},

		{
			method: get, pattern: "/v1/partitions", out: partitionList{}, status: []int{ok}, handle: (*Server).listPartitions,
			query: []param{{"model", "only of this base model"}, {"group", "only of this routing group"}, {"blocks", "1 adds the engines' hashes of every cached block"}},
			doc:   "Lists the partitions with load and cache of each rank and what keeps requests from it (`reasons`: inhibited, refusing, overloaded, busy for classes), what waits in each class of the queue, and how many sessions are bound.",
		},
		{
			method: get, pattern: "/v1/decisions", out: decisionList{}, status: []int{ok}, handle: (*Server).listDecisions,
			query: []param{
				{"limit", "at most so many, 1 to 1024; 100 unless given"},
				{"partition", "only of this partition, MODEL or MODEL:GROUP"},
				{"worker", "only those that picked this worker, by id or name"},
			},
			doc: "Lists the last decisions without their candidates, those first that were decided last: one that waited stands by when it went on, while `at` is when it came. `waited_us` is its wait, `us` the time without that.",
		},
		{
			method: get, pattern: "/v1/decisions/{ref}", out: decisionAnswer{}, status: []int{ok}, handle: (*Server).showDecision,
			query: []param{{"policy", "NAME@REVISION, or NAME for the active one: what that kept revision would have chosen; a column that it reads and that was not recorded is a `conflict`"}},
			doc: "Explains a decision, by its id or its request's: candidates, columns, masks, scores, traces and pick. With `policy`, `policy`, `rows`, `tie`, `pick`, `fault`, `traces` and `fuel` are that revision's, `recorded` is the pick that was made, and `us` is 0; " +
				"where its filters leave nothing, `pick` is null and the fault says so.",
		},
	}
}

func processRoutes(metricsPublic bool) []route {
	metrics := byToken
	if metricsPublic {
		metrics = public
	}
	const get, post = fasthttp.MethodGet, fasthttp.MethodPost
	const ok = fasthttp.StatusOK
	return []route{
		{
			method: post, pattern: "/v1/config/reload", out: Reloaded{}, status: []int{ok}, handle: (*Server).reloadConfig,
			doc: "Reads the configuration again from file, environment and flags and puts it in force as a whole, or refuses it as a whole: `conflict` names all keys that need a restart.",
		},

		{
			method: get, pattern: "/v1/config/reload", out: lastReloadAnswer{}, status: []int{ok}, handle: (*Server).showReload,
			doc: "Tells how the last reload ended, by API, by signal or by a change of the file; `last` is null when there was none. A refused one means that another configuration is in force than that of the file.",
		},
		{method: get, pattern: "/metrics", access: metrics, out: "", status: []int{ok}, handle: (*Server).showMetrics, doc: "Metrics in the Prometheus text format."},
		{method: get, pattern: "/healthz", access: public, out: statusAnswer{}, status: []int{ok}, handle: (*Server).health, doc: "Answers while the process lives."},
		{method: get, pattern: "/readyz", access: public, out: statusAnswer{}, status: []int{ok}, handle: (*Server).ready, doc: "Answers 200 while the router takes requests, else 503."},
		{method: get, pattern: "/openapi.json", out: map[string]any{}, status: []int{ok}, handle: (*Server).showOpenAPI, doc: "This API as OpenAPI 3.1."},
	}
}
