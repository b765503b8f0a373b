"""The injected file records what a PyTorch program computes, and changes nothing of it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from recorded import PROGRAM, Launches

torch = pytest.importorskip("torch")


@pytest.fixture
def launches(tmp_path: Path) -> Launches:
    return Launches(tmp_path)


def test_what_is_recorded(launches: Launches) -> None:
    launches()
    report = launches.report()
    assert report["counts"] == {"backward": 20, "steps": 20, "calls": 20, "tokens": 0}
    assert [step for step, _ in report["losses"]] == [*range(1, 21)]
    assert report["loss_dtype"] == "float32" and report["complete"] is True
    assert [own["call"] for own in report["outputs"]] == [1, 2, 4, 8, 16]
    assert [own["step"] for own in report["gradients"]] == [1, 2, 4, 8, 16]
    assert [own["step"] for own in report["updates"]] == [1, 2, 4, 8, 16]
    assert [own["step"] for own in report["parameters"]] == [0, 1, 2, 4, 8, 16]
    assert all(len(own["values"]) == 16 for own in report["outputs"])


def test_the_program_computes_the_same(launches: Launches) -> None:
    """The numbers are those that it computes by itself, and its random numbers are not touched."""
    begin = "import json; losses = []\nfor step in"
    own = PROGRAM.replace("for step in", begin)
    own = own.replace(
        "    optimizer.zero_grad()", "    losses.append(loss.item()); optimizer.zero_grad()"
    )
    own += "print(json.dumps({'own': losses, 'random': torch.rand(1).item()}))\n"
    result = launches(own)
    report = launches.report()
    assert result.exit_code == 0
    said = json.loads(launches.output.splitlines()[-1])
    assert [value for _, value in report["losses"]] == said["own"]
    plain = subprocess.run([sys.executable, "-c", own], capture_output=True, text=True, check=True)
    assert plain.stdout == launches.output


def test_losses_that_change_in_place_afterwards(launches: Launches) -> None:
    launches(PROGRAM.replace("    optimizer.step()", "    optimizer.step(); loss.detach().mul_(0)"))
    assert all(value > 0.1 for _, value in launches.report()["losses"])


def test_losses_of_micro_batches_add_up(launches: Launches) -> None:
    launches("""
    import torch
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    for step in range(3):
        for part in range(4):
            (net(torch.ones(1, 1)).sum() * 0 + 10 * step + part).backward()
        optimizer.step()
    """)
    report = launches.report()
    assert report["losses"] == [[1, 6.0], [2, 46.0], [3, 86.0]]
    assert report["counts"]["backward"] == 12


@pytest.mark.parametrize("penalty", ["", "torch.autograd.grad(loss * 2, x, create_graph=True)"])
def test_losses_of_functions_of_autograd(launches: Launches, penalty: str) -> None:
    """A gradient by itself is a loss only if the program never calls backward."""
    launches(f"""
    import torch
    from torch.autograd import backward, grad
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    for step in range(2):
        x = torch.ones(1, 1, requires_grad=True)
        loss = net(x).sum() * 0 + step + 1
        {penalty or "None"}
        backward(loss) if {bool(penalty)} else grad(loss, net.parameters())
        optimizer.step()
    """)
    report = launches.report()
    assert report["losses"] == [[1, 1.0], [2, 2.0]]
    assert report["counts"]["backward"] == (4 if penalty else 2)


@pytest.mark.parametrize(
    "output",
    ["y", "(None, y)", "{'loss': y.sum(), 'logits': y}", "[[y]]", "dataclass(y)", "y.t()"],
)
def test_outputs_of_any_form(launches: Launches, output: str) -> None:
    launches(f"""
    import dataclasses, torch
    @dataclasses.dataclass
    class dataclass:
        logits: object
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(2, 2)
        def forward(self, x):
            y = self.inner(x) * 0 + torch.arange(8.).reshape(4, 2)
            return {output}
    with torch.inference_mode():
        Net()(torch.ones(4, 2))
    """)
    ((own),) = launches.report()["outputs"]
    assert own["norm"] == pytest.approx(sum(at * at for at in range(8)) ** 0.5)
    assert sorted(own["values"]) == [*range(8)]


@pytest.mark.parametrize("kind", ["bfloat16", "int64", "complex64", "float64"])
def test_outputs_of_any_type(launches: Launches, kind: str) -> None:
    launches(f"""
    import torch
    class Net(torch.nn.Linear):
        def forward(self, x):
            return torch.arange(40).reshape(2, 20).to(torch.{kind})
    Net(1, 1)(torch.ones(1))
    """)
    (own,) = launches.report()["outputs"]
    assert own["norm"] == pytest.approx(sum(at * at for at in range(40)) ** 0.5, rel=1e-2)
    assert len(own["values"]) == 16


def test_memory_formats_have_the_same_samples(launches: Launches) -> None:
    values = []
    for memory in ("contiguous_format", "channels_last"):
        launches(f"""
        import torch
        class Net(torch.nn.Linear):
            def forward(self, x):
                return torch.arange(96.).reshape(2, 3, 4, 4).to(memory_format=torch.{memory})
        Net(1, 1)(torch.ones(1))
        """)
        values.append(launches.report()["outputs"][0]["values"])
    assert values[0] == values[1] == [3.0 + 6 * at for at in range(16)]


ENDINGS = {
    "raise SystemExit(0)": (0, True),
    # Python has no handler if its parent ignored the signal, as a shell does in the background.
    "signal.signal(2, signal.default_int_handler); os.kill(os.getpid(), 2)": (-signal.SIGINT, True),
    "1 / 0": (1, True),
    "recording['write'](False); os._exit(0)": (0, False),
    "recording['write'](False); os.kill(os.getpid(), 9)": (-signal.SIGKILL, False),
}


@pytest.mark.parametrize("end", ENDINGS)
def test_programs_that_end_early(launches: Launches, end: str) -> None:
    code, complete = ENDINGS[end]
    result = launches(f"{PROGRAM}    if step == 9: {end}\n", ends=None)
    assert result.exit_code == code
    report = launches.report()
    assert report["complete"] is complete is result.complete
    assert report["counts"]["steps"] == len(report["losses"]) == 10


def test_forked_children_have_results_of_their_own(launches: Launches) -> None:
    launches("""
    import os, torch
    def train():
        net = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
        (net(torch.ones(1)).sum() * 0 + 3).backward()
        optimizer.step()
    train()
    if child := os.fork():
        os.waitpid(child, 0)
    else:
        steps[0] = 0
        train()
        recording["write"](True)
        os._exit(0)
    """)
    folder = launches.folder / str(launches.count)
    reports = [json.loads(path.read_text()) for path in folder.glob("results.*.json")]
    assert [report["losses"] for report in reports] == [[[1, 3.0]]] * 2
    assert len({report["pid"] for report in reports}) == 2


def test_compiled_programs_are_traced_once(launches: Launches) -> None:
    """What torch.compile traces is not recorded, nor does it see the recording."""
    launches("""
    import torch
    from torch._dynamo.utils import counters
    torch.nn.Module.__call__ = call
    torch.manual_seed(0)
    net = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    @torch.compile(backend="aot_eager")
    def loss_of(x):
        return net(x).square().mean()
    for step in range(3):
        loss = loss_of(torch.ones(2, 4))
        loss.backward()
        optimizer.step()
    print(dict(counters["stats"]), dict(counters["graph_break"]))
    """)
    assert "'unique_graphs': 1" in launches.output and launches.output.strip().endswith("{}")
    report = launches.report()
    assert report["counts"]["backward"] == len(report["losses"]) == 3


def test_generated_tokens(launches: Launches) -> None:
    launches("""
    import torch
    ids = torch.tensor([[1], [2]])
    for number in range(5):
        ids = torch.cat([ids, ids[:, -1:] + 10], dim=1)
        recording["generated"](ids)
    """)
    report = launches.report()
    assert report["tokens"] == [[n, [1 + 10 * n, 2 + 10 * n]] for n in range(1, 6)]
    assert report["counts"]["tokens"] == 5


def test_many_steps_need_several_blocks(launches: Launches) -> None:
    launches("""
    import torch
    x = torch.ones((), requires_grad=True)
    optimizer = torch.optim.SGD([x], lr=0.0)
    for step in range(1500):
        (x * 0 + step).backward()
        optimizer.step()
    """)
    report = launches.report()
    assert report["losses"] == [[step + 1, step] for step in range(1500)]


def test_errors_stay_inside(launches: Launches) -> None:
    """Values that cannot be copied are not recorded; the program goes on."""
    result = launches("""
    import torch
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0)
    torch.empty = None
    net(torch.ones(1)).sum().backward()
    optimizer.step()
    print("done")
    """)
    assert result.exit_code == 0 and launches.output == "done\n"
    report = launches.report()
    assert report["losses"] == [] and report["counts"]["steps"] == 1


def test_nothing_is_written_without_a_model(launches: Launches) -> None:
    launches("import torch\n")
    folder = launches.folder / str(launches.count)
    assert not [*folder.glob("*results*")]
