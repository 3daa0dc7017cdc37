"""Stand-ins for modules that are not installed, for scripts/engine-answers.py.

install() makes every import of a missing module succeed: attributes, calls and indexes of
a stand-in are stand-ins, decorators leave what they decorate, bases vanish.
"""

import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import sys
import time
import types

# Absent means absent: with these an engine would take itself for one on other hardware.
ABSENT = {
    "libtpu", "torch_neuronx", "habana_frameworks", "transformers_neuronx", "torch_xla", "tpu_commons", "tpu_inference", "torch_npu",
    "amdsmi", "ray", "neuronxcc", "pathwaysutils", "org", "java",
}
HARDWARE = {"npu", "xpu", "hpu", "musa", "mps", "mlu"}


class Standin:
    __class_validators__: dict = {}

    def __init__(self, name="stand-in"):
        self.__dict__["_name"] = name

    def __getattr__(self, key):
        if key.startswith("__") and key.endswith("__") or key in HARDWARE:
            raise AttributeError(key)
        return Standin(f"{self._name}.{key}")

    def __call__(self, *args, **kwargs):
        if len(args) == 1 and not kwargs and callable(args[0]):
            return args[0]
        return Standin(f"{self._name}()")

    def __get_pydantic_core_schema__(self, *_):
        from pydantic_core import core_schema

        return core_schema.any_schema()

    def __getitem__(self, _):
        return self

    def __or__(self, _):
        return self

    __ror__ = __or__

    def __add__(self, other):
        return other

    __radd__ = __mul__ = __rmul__ = __add__

    def __mro_entries__(self, _):
        return ()

    def __iter__(self):
        return iter(())

    def __len__(self):
        return 0

    def __contains__(self, _):
        return False

    def __bool__(self):
        return False

    def __int__(self):
        return 2**31 - 1

    __index__ = __int__

    def __eq__(self, other):
        return isinstance(other, Standin)

    def __hash__(self):
        return 0

    def __lt__(self, _):
        return False

    __gt__ = __le__ = __ge__ = __lt__

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class Module(types.ModuleType):
    __path__: list = []
    __version__ = "99.0"

    def __getattr__(self, key):
        if key.startswith("__") and key.endswith("__") or key in HARDWARE:
            raise AttributeError(key)
        return Standin(f"{self.__name__}.{key}")


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, takes):
        self.takes = takes

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if self.takes(name) else None

    def create_module(self, spec):
        return Module(spec.name)

    def exec_module(self, module):
        pass


def install(*replaced):
    """Stands in for missing modules, and for the packages in replaced though they exist."""

    def missing(name):
        parent, _, last = name.rpartition(".")
        if parent:  # a compiled module of the engine, or a part of a stand-in
            return isinstance(sys.modules.get(parent), Module) or parent in ("vllm", "sglang") and last.startswith("_")
        return not name.startswith("_") and name not in sys.stdlib_module_names and name not in ABSENT

    def wanted(name):
        return any(name == r or name.startswith(r + ".") for r in replaced)

    sys.meta_path.insert(0, Finder(wanted))
    sys.meta_path.append(Finder(missing))
    version = importlib.metadata.version

    def known(name):
        try:
            return version(name)
        except importlib.metadata.PackageNotFoundError:
            return "99.0"

    importlib.metadata.version = known
    time.time = lambda: 1764000000.0


class Loose(types.SimpleNamespace):
    """An object whose attributes are stand-ins unless they are given."""

    def __getattr__(self, key):
        if key.startswith("__") and key.endswith("__"):
            raise AttributeError(key)
        return Standin(key)


def write_json(path, content):
    path.write_text(json.dumps(content, indent=1, default=str) + "\n")


def write_metrics(path):
    """Writes what the default registry exposes, without the process's own and without buckets."""
    import prometheus_client as p

    for c in (p.PROCESS_COLLECTOR, p.PLATFORM_COLLECTOR, p.GC_COLLECTOR):
        p.REGISTRY.unregister(c)
    lines = p.generate_latest().decode().splitlines(keepends=True)
    path.write_text("".join(l for l in lines if "_bucket{" not in l and "_created" not in l))
