package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/routerd/routerd/internal/config"
)

func TestWhatIsProbablyNotMeantIsWarnedOf(t *testing.T) {
	const (
		bare  = "workers: {static: [{name: w1, url: 'http://127.0.0.1:1', model: m}, {name: w2, url: 'http://127.0.0.1:2', model: m, max_batched_tokens: 8192, total_kv_blocks: 1000}]}\n"
		whole = "workers: {static: [{name: w1, url: 'http://127.0.0.1:1', model: m, max_batched_tokens: 8192, total_kv_blocks: 1000}]}\n"
		parts = "queue: {classes: {chat: {busy: {prefill_fraction: 1}}}, overload: {prefill_fraction: 2, kv_fraction: 0.9}}\n"
	)
	var none []config.Warning
	for name, c := range map[string]struct {
		text string
		want []config.Warning
	}{
		"nothing":                       {"", none},
		"bounds with what they need":    {whole + parts, none},
		"bounds without workers":        {parts, none},
		"workers without bounds":        {bare, none},
		"bounds that are plain numbers": {bare + "queue: {overload: {prefill_tokens: 5}, classes: {default: {busy: {prefill_tokens: 5, active_requests: 1}}}}", none},
		"parts of what is not there": {bare + parts, []config.Warning{
			{config.WarnNoCapacity, "queue.classes.chat.busy.prefill_fraction", `no max_batched_tokens in the record of "w1": where its engine does not tell it either, it counts as 10000000, so that in practice the bound is never passed there`},
			{config.WarnNoCapacity, "queue.overload.prefill_fraction", `no max_batched_tokens in the record of "w1": where its engine does not tell it either, it counts as 10000000, so that in practice the bound is never passed there`},
			{config.WarnNoCapacity, "queue.overload.kv_fraction", `no total_kv_blocks in the record of "w1": where its engine does not tell it either, the bound does not hold there`},
		}},
		"many workers": {
			"workers: {static: [{name: a, url: 'http://h:1'}, {name: b, url: 'http://h:2'}, {name: c, url: 'http://h:3'}, {name: d, url: 'http://h:4'}, {name: e, url: 'http://h:5'}]}\nqueue: {overload: {kv_fraction: 0.5}}",
			[]config.Warning{{config.WarnNoCapacity, "queue.overload.kv_fraction", `no total_kv_blocks in the record of "a", "b", "c" and 2 more: where its engine does not tell it either, the bound does not hold there`}},
		},
		"a rule for a class that is there": {"routing: {rules: [{class: default, policy: default}, {class: chat, policy: default}]}\nqueue: {classes: {chat: {}}}", none},
		"a rule for a class that is not": {"routing: {rules: [{model: m, policy: default}, {class: chat, policy: default}]}", []config.Warning{
			{config.WarnUnknownClass, "routing.rules[1].class", `class "chat" is none of queue.classes: requests of this class get the rule's policy, and wait as those of class "default"`},
		}},
		"adapters of models that are there": {bare + "models: {n: {block_size: 16}}\nlora: {manage: [{name: a, model: m, path: /a}, {name: b, model: n, path: /b}]}", none},
		"an adapter of a model that is not": {bare + "lora: {manage: [{name: a, model: m, path: /a}, {name: b, model: nn, path: /b}]}", []config.Warning{
			{config.WarnUnknownModel, "lora.manage[1].model", `model "nn" is that of no worker of the file and none of models: adapter "b" is loaded nowhere until a worker of it is there`},
		}},
		"more adapters than slots": {bare + "lora: {slots: 1, manage: [{name: a, model: m, path: /a}, {name: b, model: m, path: /b}, {name: c, model: m, path: /c}]}", []config.Warning{
			{config.WarnFewSlots, "lora.slots", `3 adapters of model "m", and its 2 workers of the file hold 2: those that nobody asks for make room, and while all are asked for some are loaded beyond the slots, which the engine may refuse`},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := mustLoad(t, c.text, nil).Config.Warnings()
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
