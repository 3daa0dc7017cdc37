"""Runs vLLM's own code for what it answers about itself; see engine-answers.py.

The engine: base-model with two adapters, two data-parallel ranks of 20,000 blocks of 16
tokens, KV events on tcp://*:5557 and replay on tcp://*:5567.
"""

import asyncio
import dataclasses
import importlib
import pathlib
import re
import sys

import engine_answers_standin as standin

out = pathlib.Path(sys.argv[1])
release = out.name.split("-", 1)[1]
# vllm.ir declares GPU kernels.
standin.install("vllm.ir", "vllm.kernels")


def first(*names):
    """The first of the names, module:attribute, that this release has."""
    for name in names:
        module, attribute = name.split(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except ModuleNotFoundError as err:
            if not module.startswith(err.name or "?"):
                raise
        except AttributeError:
            continue
    raise ImportError(f"none of {names}")


def models():
    """/v1/models by OpenAIServingModels.show_available_models."""
    serving = first("vllm.entrypoints.openai.models.serving:OpenAIServingModels", "vllm.entrypoints.openai.serving_models:OpenAIServingModels")
    module = sys.modules[serving.__module__]
    model_config = standin.Loose(max_model_len=8192, max_loras=4)
    bases = [standin.Loose(name="base-model", model_path="org/base-model")]
    loras = [standin.Loose(lora_name=n, local_path=p, path=p, lora_path=p, lora_int_id=i, base_model_name=None)
             for i, (n, p) in enumerate([("sql-adapter", "/adapters/sql"), ("chat-adapter", "/adapters/chat")], 1)]
    s = object.__new__(serving)
    s.base_model_paths, s.max_model_len, s.model_config, s.prompt_adapter_requests = bases, 8192, model_config, []
    s.lora_requests = loras if tuple(map(int, release.split(".")[:2])) < (0, 10) else {l.lora_name: l for l in loras}
    if hasattr(module, "OpenAIModelRegistry"):
        s.registry = module.OpenAIModelRegistry(model_config=model_config, base_model_paths=bases)
    content = asyncio.run(s.show_available_models()).model_dump()
    for i, card in enumerate(content["data"]):
        for permission in card["permission"]:
            permission["id"] = f"modelperm-{i}"
    standin.write_json(out / "v1_models.json", content)


def cache_config():
    """The configuration of the cache after two ranks have told their blocks."""
    config = first("vllm.config.cache:CacheConfig", "vllm.config:CacheConfig")
    # Arguments that the constructor of some releases wants.
    cache = config(block_size=16, gpu_memory_utilization=0.9, cache_dtype="auto")
    client = first("vllm.v1.engine.core_client:MPClient")
    apply = getattr(client, "_apply_ready_response", None)
    if apply is None:
        # The same sum stands inside of a function that waits for processes: 0.9.0
        # v1/engine/core_client.py, "Sum values from all engines in DP case", later
        # v1/engine/utils.py, wait_for_engine_startup.
        for blocks in (20000, 20000):
            cache.num_gpu_blocks = (cache.num_gpu_blocks or 0) + blocks
        return cache
    import msgspec

    response = first("vllm.v1.engine:EngineCoreReadyResponse")
    frontend = standin.Loose(
        vllm_config=standin.Loose(cache_config=cache, model_config=standin.Loose(max_model_len=8192), parallel_config=standin.Loose()),
        stats_update_address=None, _kv_event_sources={}, _effective_attention_block_sizes=set())
    given = {"max_model_len": 8192, "num_gpu_blocks": 20000, "block_size": 16, "kv_cache_size_tokens": 320000, "kv_cache_max_concurrency": 39.0}
    for rank in (0, 1):
        fields = {}
        for f in dataclasses.fields(response):
            if f.name in given:
                fields[f.name] = given[f.name]
            elif f.name == "data_parallel_rank":
                fields[f.name] = rank
            elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
                fields[f.name] = {"str": "", "int": 2, "bool": True}.get(getattr(f.type, "__name__", f.type))
        apply(frontend, msgspec.msgpack.encode(response(**fields)))
    return cache


def metrics():
    """/metrics by PrometheusStatLogger."""
    logger = first("vllm.v1.metrics.loggers:PrometheusStatLogger")
    config = standin.Loose(
        cache_config=cache_config(), model_config=standin.Loose(served_model_name="base-model", max_model_len=8192),
        lora_config=standin.Loose(max_loras=4), speculative_config=None, kv_transfer_config=None,
        observability_config=standin.Loose(show_hidden_metrics=False, custom_histogram_buckets=None), parallel_config=standin.Loose(data_parallel_size=2))
    if "engine_indexes" in logger.__init__.__code__.co_varnames:
        config.lora_config = None  # two ranks with adapters are warned about and told alike
        logger(config, [0, 1]).log_engine_initialized()
    else:
        for rank in (0, 1):
            one = logger(config, rank)
            one.log_metrics_info("cache_config", config.cache_config)
    standin.write_metrics(out / "metrics.txt")


def version():
    """/version by its route, where the module can be imported; the same words else."""
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    import vllm.version

    # The version's file is written when the wheel is built; it holds the release.
    assert vllm.version.__version__ == release, vllm.version.__version__
    try:
        basic = importlib.import_module("vllm.entrypoints.serve.instrumentator.basic")
    except ImportError:
        standin.write_json(out / "version.json", {"version": vllm.version.__version__})
        return
    app = FastAPI()
    app.include_router(basic.router)
    client = TestClient(app)
    standin.write_json(out / "version.json", client.get("/version").json())
    if hasattr(basic, "kv_event_sources"):
        sources(app, client)


def sources(app, client):
    """/kv_event_sources by its route, from what running publishers say of themselves."""
    config = first("vllm.config.kv_events:KVEventsConfig")
    factory = first("vllm.distributed.kv_events:EventPublisherFactory")
    publishers = []
    for name, given in {
        "kv_event_sources.json": {"endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5567", "topic": "kv@pod@base-model"},
        "kv_event_sources_free_ports.json": {"endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"},
    }.items():
        ranks = {}
        for rank in (0, 1):
            publishers.append(factory.create(config(enable_kv_cache_events=True, **given), data_parallel_rank=rank))
            ranks[rank] = publishers[-1].get_publisher_config()
        app.state.engine_client = standin.Loose(get_kv_event_sources=lambda ranks=ranks: ranks)
        content = client.get("/kv_event_sources").json()
        if "free" in name:  # addresses and ports of this machine and this moment
            for rank, c in content.items():
                for i, key in enumerate(("endpoint", "replay_endpoint")):
                    c[key] = re.sub(r"//.*:\d+$", f"//10.0.0.7:{41000 + 10 * int(rank) + i}", c[key])
        standin.write_json(out / name, content)
    for p in publishers:
        p.shutdown()


def developer_info():
    """/server_info?config_format=json of the developer mode by its route."""
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    try:
        route = importlib.import_module("vllm.entrypoints.serve.dev.server_info.api_router")
    except ModuleNotFoundError:
        return
    config = first("vllm.config:VllmConfig")
    shown = object.__new__(config)
    for f in dataclasses.fields(config):
        object.__setattr__(shown, f.name, None)
    shown.cache_config = cache_config()
    shown.scheduler_config = first("vllm.config:SchedulerConfig")(
        max_num_batched_tokens=8192, max_num_seqs=256, max_model_len=8192, is_encoder_decoder=False)
    shown.kv_events_config = first("vllm.config.kv_events:KVEventsConfig")(
        enable_kv_cache_events=True, endpoint="tcp://*:5557", replay_endpoint="tcp://*:5567", topic="kv@pod@base-model")
    app = FastAPI()
    app.include_router(route.router)
    app.state.vllm_config = shown
    route._get_vllm_env_vars = dict  # of the machine that runs this
    route._get_system_env_info_cached = dict
    standin.write_json(out / "server_info_developer_mode.json", TestClient(app).get("/server_info?config_format=json").json())


models()
metrics()
version()
developer_info()
