"""Lets DataLoaders load in worker processes that stay from one epoch to the next."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "more DataLoader workers"
ANSWERS = ("more_loading", "data_loading", "keep_workers", "host_work")
PRIOR = 0.8
FREE = False
NEEDS = "torch"
EXPECT, TOLERANCE = "scatter", None
DIFFICULTY = "low"
RISKS = (
    "Random augmentation draws other numbers; workers that stay do not see changes of the data set "
    "between epochs."
)
ORDER = 50
#: Random numbers of augmentation then depend on the batch, not on the worker.
VERIFY: "dict[str, Any]" = {"pinned": True}

#: Variables with the number of ranks on a node: of torchrun, Open MPI, Intel MPI and Slurm.
RANKS = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "SLURM_NTASKS_PER_NODE",
)

#: Workers beyond this number are rarely useful.
MOST = 16


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    changes = [one["where"].rsplit("-> ", 1)[-1].split(", ") for one in applied]
    changes = changes or [["%s workers" % options.get("workers", MOST), "persistent_workers=True"]]
    texts = ["num_workers=%s" % ", ".join([own[0].split()[0], *own[1:]]) for own in changes]
    return "\n".join("DataLoader(..., %s)" % text for text in dict.fromkeys(texts))


def _wanted(options: "dict[str, Any]") -> int:
    """Return the number of workers: what is asked for, or the rank's share of the cores."""
    if options.get("workers"):
        return int(options["workers"])
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    ranks = [os.environ[name] for name in RANKS if os.environ.get(name, "").isdigit()]
    return min(MOST, max(1, cores // max(1, int(ranks[0]) if ranks else 1)))


def _functions(kind: type) -> "Any":
    """Yield the Python functions of a class, and of those it derives from."""
    for one in kind.__mro__:
        for function in vars(one).values():
            code = getattr(function, "__code__", None)
            if code is not None:
                yield one, code


def _names(codes: "Any") -> "set[str]":
    """Return the names that functions use, and the functions in them."""
    found: "set[str]" = set()
    left = list(codes)
    while left:
        code = left.pop()
        found.update(code.co_names)
        left += [one for one in code.co_consts if hasattr(one, "co_names")]
    return found


def _parts(dataset: "Any", depth: int = 8) -> "list[Any]":
    """Return a data set and those that it consists of: Subset, ConcatDataset."""
    inner = [getattr(dataset, "dataset", None), *_listed(getattr(dataset, "datasets", None))]
    parts = [_parts(one, depth - 1) for one in inner if one is not None] if depth else []
    return [dataset, *(each for own in parts for each in own)]


def _listed(value: "Any") -> "list[Any]":
    return list(value[:16]) if isinstance(value, (list, tuple)) else []


def _on_gpu(torch: "Any", value: "Any") -> bool:
    """Return whether a value of a data set is on a GPU, or names one."""
    if isinstance(value, torch.Tensor):
        return bool(value.is_cuda)
    return isinstance(value, (str, torch.device)) and str(value).split(":")[0] == "cuda"


def _why_not(torch: "Any", dataset: "Any", collate: "Any") -> "str | None":
    """Return why workers cannot load a data set."""
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.current_process().daemon:
        return "its process may not start others"
    codes = [collate.__code__] if hasattr(collate, "__code__") else []
    for part in _parts(dataset):
        kind = type(part)
        own = [c for k, c in _functions(kind) if not k.__module__.startswith("torch.utils.data.")]
        codes += own
        iterable = isinstance(part, torch.utils.data.IterableDataset)
        shares = "get_worker_info" in _names(own) or kind.__module__.split(".")[0] == "datasets"
        if iterable and not shares:
            return "IterableDataset without get_worker_info: workers would repeat its items"
        values = list(getattr(part, "__dict__", {}).values())
        values += [each for value in values for each in _listed(value)]
        if any(_on_gpu(torch, value) for value in values):
            return "the data set is on the GPU"
    return "the data set uses CUDA" if "cuda" in _names(codes) else None


def install(own: "Any") -> None:
    """Change the arguments of DataLoader."""
    own.after("torch.utils.data.dataloader", lambda module: _patch(own, module))


def _patch(own: "Any", module: "Any") -> None:
    import functools
    import inspect
    import weakref

    torch, loader = own.torch, module.DataLoader
    init, iterate = loader.__init__, loader.__iter__
    signature = inspect.signature(init)
    changed: "Any" = weakref.WeakKeyDictionary()  # by loader: what to report once it is used
    drawn: "Any" = weakref.WeakSet()  # loaders whose workers would end after each epoch
    held = [0]
    texts: "dict[int, str]" = {}  # the same by data set: frameworks make their own loader of one

    def change(bound: "Any") -> str:
        """Change arguments; return what to report, or raise ValueError with the reason."""
        given = bound.arguments
        before, wanted = int(given.get("num_workers", 0)), _wanted(own.options)
        dataset = given.get("dataset")
        if before >= wanted:
            if id(dataset) in texts:
                return texts[id(dataset)]
            text = "DataLoader: %d worker%s already" % (before, "" if before == 1 else "s")
            raise ValueError(text)
        why = _why_not(torch, dataset, given.get("collate_fn"))
        if why is not None:
            raise ValueError("DataLoader: %s" % why)
        more: "dict[str, Any]" = {}
        if not hasattr(dataset, "set_epoch"):
            more["persistent_workers"] = True
        if own.options.get("prefetch"):
            more["prefetch_factor"] = own.options["prefetch"]
        if own.gpu:
            more["pin_memory"] = True
        given["persistent_workers"] = False
        given.update(more, num_workers=wanted)
        said = ["%d workers" % wanted, *("%s=%s" % one for one in more.items())]
        texts[id(dataset)] = "DataLoader: %d -> %s" % (before, ", ".join(said))
        return texts[id(dataset)]

    def self_persists(args: "Any", kwargs: "Any") -> bool:
        """Return whether the program itself keeps the workers of a loader."""
        given = signature.bind(None, *args, **kwargs).arguments
        return bool(given.get("persistent_workers"))

    @functools.wraps(init)
    def more_init(self: "Any", *args: "Any", **kwargs: "Any") -> None:
        try:
            bound = signature.bind(self, *args, **kwargs)
            text = change(bound)
        except ValueError as why:
            own.refused(str(why))
        except Exception as error:
            own.failed("%s: %s" % (type(error).__name__, error))
        else:
            try:
                init(*bound.args, **bound.kwargs)
            except Exception as error:
                own.failed("%s: %s" % (type(error).__name__, error))
            else:
                changed[self] = text
                if self.persistent_workers and not self_persists(args, kwargs):
                    drawn.add(self)
                return
        init(self, *args, **kwargs)

    @functools.wraps(iterate)
    def noted_iter(self: "Any") -> "Any":
        text = changed.pop(self, None)
        if text is not None:
            own.applied(text)
            held[0] = max(held[0], self.num_workers * (self.prefetch_factor or 2))
        if self in drawn and self._iterator is not None:
            # Workers that are started draw a seed, so a loader that shuffles draws the next number.
            torch.empty((), dtype=torch.int64).random_(generator=self.generator)
        return iterate(self)

    own.at_end(lambda: {"batches_held": held[0]} if held[0] else {})

    loader.__init__, loader.__iter__ = more_init, noted_iter
    own.at_end(lambda: own.effective(True) if own.places else None)
