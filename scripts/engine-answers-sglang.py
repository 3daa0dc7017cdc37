"""Runs SGLang's own code for what it answers about itself; see engine-answers.py.

The engine: base-model, two data-parallel ranks, each with 320,000 tokens in pages of 64,
KV events on tcp://*:5557, replay on tcp://*:5567 and, from 0.5.23, its load socket.
"""

import asyncio
import ast
import dataclasses
import json
import pathlib
import sys
import typing

import engine_answers_standin as standin

out = pathlib.Path(sys.argv[1])
release = out.name.split("-", 1)[1]
number = tuple(map(int, release.split(".")))
# What needs a GPU, and what patches or loads models, which no answer is made of.
standin.install(
    "sglang.srt.layers", "sglang.srt.distributed", "sglang.srt.models", "sglang.srt.model_loader", "sglang.srt.model_executor.model_runner",
    "sglang.srt.model_executor.forward_batch_info", "sglang.srt.utils.hf_transformers_patches", "sglang.srt.utils.hf_transformers_utils",
    "sglang.srt.hf_transformers_utils", "sglang.srt.utils.hf_transformers", "sglang.srt.hardware_backend", "sglang.lang", "sglang.srt.multimodal",
    "sglang.srt.constrained", "sglang.srt.configs", "sglang.srt.platforms", "sglang.srt.mem_cache.memory_pool", "sglang.srt.mem_cache.memory_pool_host", "sglang.kernels", "sglang.jit_kernel")
root = pathlib.Path(next(p for p in sys.path if p.endswith(out.name))) / "sglang" / "srt"

EVENTS = {"publisher": "zmq", "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5567", "topic": ""}
GIVEN = {
    "model_path": "org/base-model", "tokenizer_path": "org/base-model", "served_model_name": "base-model", "page_size": 64, "dp_size": 2,
    "tp_size": 2, "enable_dp_attention": True, "kv_events_config": json.dumps(EVENTS), "max_prefill_tokens": 16384,
    "chunked_prefill_size": 8192, "random_seed": 1, "enable_lora": True, "load_publish_endpoint": "tcp://*:5577", "dcp_size": 1,
    "host": "0.0.0.0", "port": 30000, "api_key": None, "admin_api_key": None,
}


def function(path, name, **known):
    """Compiles one function of a file by itself, without its decorators."""
    tree = ast.parse((root / path).read_text())
    node = next(n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.name == name)
    node.decorator_list = []
    names = {**vars(typing), "dataclasses": dataclasses, "logger": standin.Standin("logger"), **known}
    exec(compile(ast.Module([node], []), str(path), "exec"), names)
    return names[name]


def server_args():
    """ServerArgs with its defaults and what is given, not checked against a GPU."""
    from sglang.srt.server_args import ServerArgs

    if not dataclasses.is_dataclass(ServerArgs):  # a record that is resolved later
        import msgspec

        names = {f.name for f in msgspec.structs.fields(ServerArgs)}
        return ServerArgs(**{n: v for n, v in GIVEN.items() if n in names})
    args = object.__new__(ServerArgs)
    for f in dataclasses.fields(ServerArgs):
        value = f.default
        if value is dataclasses.MISSING:
            value = None if f.default_factory is dataclasses.MISSING else f.default_factory()
        object.__setattr__(args, f.name, GIVEN.get(f.name, value))
    return args


def models():
    """/v1/models by the function available_models of the HTTP server."""
    protocol = "sglang.srt.openai_api.protocol" if number < (0, 4, 8) else "sglang.srt.entrypoints.openai.protocol"
    module = __import__(protocol, fromlist=["ModelCard"])
    adapters = {n: standin.Loose(lora_name=n, lora_path=p) for n, p in [("sql-adapter", "/adapters/sql"), ("chat-adapter", "/adapters/chat")]}
    manager = standin.Loose(
        served_model_name="base-model", model_config=standin.Loose(context_len=8192), server_args=standin.Loose(enable_lora=True),
        lora_registry=standin.Loose(get_all_adapters=lambda: adapters))
    available = function(
        "entrypoints/http_server.py", "available_models", ModelCard=module.ModelCard, ModelList=module.ModelList,
        _global_state=standin.Loose(tokenizer_manager=manager), get_lora=lambda: standin.Loose(enable_lora=True))
    content = available()
    if asyncio.iscoroutine(content):
        content = asyncio.run(content)
    standin.write_json(out / "v1_models.json", content.model_dump())


def server_info(args):
    """/server_info by its function, or /get_server_info where that is the only one."""
    async def states():
        return [{"last_gen_throughput": 0.0}, {"last_gen_throughput": 0.0}]

    state = standin.Loose(
        tokenizer_manager=standin.Loose(server_args=args, get_internal_state=states, startup_time=12.5),
        scheduler_info={"status": "ready", "max_total_num_tokens": 320000, "max_req_input_len": 8186})
    known = {"_global_state": state, "__version__": release, "redact_watermark_secrets": lambda v: v}
    path = "entrypoints/http_server.py"
    source = (root / path).read_text()
    if "msgspec_to_builtins" in source:
        from sglang.srt.utils.msgspec_utils import msgspec_to_builtins

        known["msgspec_to_builtins"] = msgspec_to_builtins
    if "build_server_info" in source:
        from sglang.srt.utils.common import build_server_info

        known["build_server_info"] = build_server_info
    name = "server_info" if "async def server_info(" in source else "get_server_info"
    content = asyncio.run(function(path, name, **known)())
    content.pop("model_config", None)
    standin.write_json(out / f"{name}.json", content)


def metrics(args):
    """/metrics by SchedulerMetricsCollector, of two ranks in one registry as the routes join them."""
    if number < (0, 5, 10):
        from sglang.srt.metrics.collector import SchedulerMetricsCollector, SchedulerStats
    else:
        from sglang.srt.observability.metrics_collector import SchedulerMetricsCollector, SchedulerStats
    import inspect

    if number >= (0, 5, 23):  # buckets of histograms come from a configuration that only a launch publishes
        from sglang.srt import runtime_context

        type(runtime_context._CONTEXT).config_bag = lambda *_: standin.Loose(prefill_delayer_max_delay_passes=30)
    takes = inspect.signature(SchedulerMetricsCollector.__init__).parameters
    labels = {"model_name": "base-model", "engine_type": "unified", "tp_rank": 0, "pp_rank": 0}
    if number >= (0, 5, 4):
        labels |= {"dp_rank": 0, "moe_ep_rank": 0}
    one = SchedulerMetricsCollector(labels=labels, **({"server_args": args} if "server_args" in takes else {}))
    for rank in (0, 1) if "dp_rank" in labels else (0,):
        if "dp_rank" in labels:
            one.labels = {**labels, "dp_rank": rank, "tp_rank": rank}
        stats = SchedulerStats()
        stats.max_total_num_tokens = 320000
        one.log_stats(stats)
        if hasattr(one, "emit_cache_config_info"):
            one.emit_cache_config_info(64, 5000)
        if hasattr(one, "emit_constants"):
            given = {"max_total_num_tokens": 320000, "page_size": 64, "num_pages": 5000, "context_len": 8192, "graph_memory_usage_gb": {}}
            takes = inspect.signature(one.emit_constants).parameters
            one.emit_constants(**{n: given.get(n, None if "swa" in n or "SLO" in n else 1.0) for n in takes})
    standin.write_metrics(out / "metrics.txt")


models()
arguments = server_args()
server_info(arguments)
metrics(arguments)
