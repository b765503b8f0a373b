"""Names of ranges in the tree: counters are replaced, and words stay."""

from conftest import Tiny

NAMES = (
    ("h2d", "h2d"), ("fp16", "fp16"), ("conv2d", "conv2d"), ("resnet50", "resnet50"),
    ("layer1.conv2", "layer1.conv2"), ("AddmmBackward0", "AddmmBackward0"),
    ("gemm_16x16", "gemm_16x16"), ("mm_2d", "mm_2d"), ("12h 30m", "12h 30m"), ("rank0", "rank0"),
    ("stepper5", "stepper5"), ("step12step13", "step12step13"), ("\u00e9t\u00e92", "\u00e9t\u00e92"),
    ("Optimizer.step#AdamW.step", "Optimizer.step#AdamW.step"), ("seq len", "seq len"),
    ("", ""), ("step 12", "step *"), ("step12", "step*"), ("Step_7", "Step_*"),
    ("iter_3", "iter_*"), ("iter3_fwd", "iter*_fwd"), ("epoch=4", "epoch=*"),
    ("epoch4/step12", "epoch*/step*"), ("layer.11", "layer.*"), ("Conv2d_1", "Conv2d_*"),
    ("ProfilerStep#5", "ProfilerStep#*"), ("microbatch3", "microbatch*"), ("7 8 9", "* * *"),
    ("step 12/100", "step */*"), ("lr=0.001", "lr=*.*"), ("[32, 128]", "[*, *]"),
    ("at 0x7f3a2b", "at *"), ("r1_2_3_4", "r1_*_*_*"), ("42", "*"), ("h2d 3", "h2d *"),
    ("aten::mm, seq = 12, op_id = 5", "aten::mm"), ("aten::add, op_id = 7", "aten::add"),
    ("MmBackward, stashed seq=4", "MmBackward"),
    ("aten::mm, seq = 12, op_id = 5, sizes = [[2, 3]]", "aten::mm"),
)  # fmt: skip


def test_counters_are_replaced_and_words_stay() -> None:
    db = Tiny()
    for name, _ in NAMES:
        db.add("nsys_nvtx_ranges", {"name": name, "style": "PushPop", "gpu_calls": 1})
    found = dict(db.rows("SELECT name, range_stem(name) FROM nsys_nvtx_ranges"))
    assert found == dict(NAMES)
