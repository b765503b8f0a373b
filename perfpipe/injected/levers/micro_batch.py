"""Makes micro-batches larger, and accumulates gradients over fewer of them."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TITLE = "micro-batches {times} times as large, fewer accumulation steps"
ANSWERS = ("larger_batch", "larger_training_batch")
FREE = False
NEEDS = "torch"
EXPECT, TOLERANCE = "tolerance", 1e-4
DIFFICULTY = "low"
RISKS = (
    "Activations take more memory; batch normalization sees other batches, and dropout draws other "
    "random numbers."
)
ORDER = 35
#: A step has fewer calls and backward passes; its losses and gradients are compared.
REGROUPS = True
VARIANTS: "tuple[dict[str, Any], ...]" = ({"times": 2}, {"times": 4})

#: Arguments of each library: size of the micro-batch, and number of accumulated micro-batches.
ARGUMENTS = {
    "transformers": (
        "TrainingArguments(per_device_train_batch_size=%s, gradient_accumulation_steps=%s)"
    ),
    "accelerate": "DataLoader(..., batch_size=%s)\nAccelerator(gradient_accumulation_steps=%s)",
    "Lightning": "DataLoader(..., batch_size=%s)\nTrainer(accumulate_grad_batches=%s)",
}


def manual(options: "dict[str, Any]", applied: "list[dict[str, Any]]") -> str:
    """Return the change to make by hand."""
    changes = []
    for one in applied or [{"where": "transformers: a micro-batch of 1 x 2 -> 2 x 1"}]:
        library, sizes = one["where"].split(": ", 1)
        changes.append(ARGUMENTS[library] % tuple(sizes.rsplit("-> ", 1)[-1].split(" x ")))
    return "\n".join(dict.fromkeys(changes))


def install(own: "Any") -> None:
    """Change the arguments of the libraries that accumulate gradients."""
    change = _Change(own)
    own.after("transformers.training_args", change.transformers)
    own.after("accelerate.accelerator", change.accelerate)
    for name in ("lightning.pytorch", "pytorch_lightning"):
        own.after("%s.trainer.connectors.data_connector" % name, change.lightning)
    own.at_end(lambda: own.effective(True) if own.places else None)


class _Change:
    """What is changed in this process."""

    def __init__(self, own: "Any") -> None:
        self._own, self._times = own, int(own.options.get("times", 2))
        self._made: "list[tuple[int, int]]" = []  # sizes and steps of transformers
        self._larger: "list[Any]" = []  # batch samplers, which are changed once

    def _divides(self, library: str, steps: int) -> bool:
        """Return whether fewer accumulation steps are possible; otherwise say why not."""
        if steps > 1 and steps % self._times == 0:
            return True
        self._own.refused(
            "%s: %d accumulation step%s" % (library, steps, "" if steps == 1 else "s")
        )
        return False

    def _applied(self, library: str, size: int, steps: int) -> None:
        new = size * self._times, steps // self._times
        self._own.applied("%s: a micro-batch of %d x %d -> %d x %d" % (library, size, steps, *new))

    def transformers(self, module: "Any") -> None:
        """Change TrainingArguments before anything is derived from them."""
        import functools

        kind = module.TrainingArguments
        derive = kind.__post_init__

        @functools.wraps(derive)
        def larger(arguments: "Any", *args: "Any", **kwargs: "Any") -> "Any":
            self._own.safely(self._arguments, arguments)
            return derive(arguments, *args, **kwargs)

        kind.__post_init__ = larger

    def _arguments(self, arguments: "Any") -> None:
        size = int(arguments.per_device_train_batch_size)
        steps = int(arguments.gradient_accumulation_steps)
        if (size, steps) in self._made:
            return  # a copy of what was changed
        if self._divides("transformers", steps):
            self._applied("transformers", size, steps)
            size, steps = size * self._times, steps // self._times
            self._made.append((size, steps))
            arguments.per_device_train_batch_size = size
            arguments.gradient_accumulation_steps = steps

    def accelerate(self, module: "Any") -> None:
        """Change the loaders that a program prepares, and the steps of its Accelerator."""
        import functools

        kind = module.Accelerator
        prepare = kind.prepare

        @functools.wraps(prepare)
        def larger(accelerator: "Any", *args: "Any", **kwargs: "Any") -> "Any":
            if not self._made:
                self._own.safely(self._prepared, accelerator, args)
            return prepare(accelerator, *args, **kwargs)

        kind.prepare = larger

    def _prepared(self, accelerator: "Any", given: "Any") -> None:
        loader = self._own.torch.utils.data.DataLoader
        loaders = [one for one in given if isinstance(one, loader)]
        if not loaders:
            return
        steps = int(accelerator.gradient_accumulation_steps)
        # Others are for validation.
        shuffled = [one for one in loaders if self._shuffles(one)]
        if not shuffled:
            self._own.refused("accelerate: no DataLoader shuffles")
        elif self._divides("accelerate", steps):
            sizes = [self._enlarge("accelerate", one) for one in shuffled]
            if any(sizes):
                accelerator.gradient_accumulation_steps = steps // self._times
                self._applied("accelerate", max(sizes), steps)

    def lightning(self, module: "Any") -> None:
        """Change the training loaders that a Trainer prepares, and its accumulation steps."""
        import functools

        kind = module._DataConnector
        prepare = kind._prepare_dataloader

        @functools.wraps(prepare)
        def larger(
            connector: "Any", dataloader: "Any", shuffle: bool, mode: "Any", **more: "Any"
        ) -> "Any":
            if getattr(mode, "value", None) == "train":
                self._own.safely(self._trained, connector.trainer, dataloader)
            return prepare(connector, dataloader, shuffle, mode, **more)

        kind._prepare_dataloader = larger

    def _trained(self, trainer: "Any", dataloader: "Any") -> None:
        steps = int(trainer.accumulate_grad_batches)
        if self._known(dataloader) or not self._divides("Lightning", steps):
            return
        size = self._enlarge("Lightning", dataloader)
        if size:
            trainer.accumulate_grad_batches = steps // self._times
            self._applied("Lightning", size, steps)

    def _shuffles(self, loader: "Any") -> bool:
        kinds = self._own.torch.utils.data
        return isinstance(getattr(loader, "sampler", None), kinds.RandomSampler)

    def _known(self, loader: "Any") -> bool:
        sampler = getattr(loader, "batch_sampler", None)
        return any(sampler is one for one in self._larger)

    def _enlarge(self, library: str, loader: "Any") -> int:
        """Make the batches of a loader larger; return their former size, 0 if that is impossible.

        Loaders ask their batch sampler for the indices of each batch.
        """
        sampler: "Any" = getattr(loader, "batch_sampler", None)
        if type(sampler) is not self._own.torch.utils.data.BatchSampler:
            self._own.refused("%s: a DataLoader without a plain BatchSampler" % library)
            return 0
        if self._known(loader):
            return 0
        size = int(sampler.batch_size)
        sampler.batch_size = size * self._times
        self._larger.append(sampler)
        return size
