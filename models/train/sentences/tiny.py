#!/usr/bin/env python3
"""A sentence encoder of a few hundred numbers, for the tests: the same inputs, outputs and files as the large one.

Usage: tiny.py OUT. Its pieces are what the tests say; its sentence is the mean of their rows, its head is linear.
"""
import hashlib
import json
import pathlib
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import build

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
LABELS = ["none", "pump_start", "pump_stop", "fan_start"]
PIECES = [("▁", -2.0), ("启动", -3.0), ("停止", -3.0), ("水泵", -4.0), ("风机", -4.0), ("天气", -5.0), ("怎么样", -5.0), ("抽", -6.0), ("水", -6.0)]
# What each piece means: start, stop, pump, fan, talk.
MEANS = {"启动": 0, "停止": 1, "水泵": 2, "风机": 3, "天气": 4, "怎么样": 4, "抽": 5, "水": 6}
table = np.zeros((3 + len(PIECES), 8), np.float32)
for number, (piece, _) in enumerate(PIECES, 3):
    if piece in MEANS:
        table[number, MEANS[piece]] = 1
head = np.zeros((8, len(LABELS)), np.float32)
head[4, 0] = 30
head[0, 1] = head[2, 1] = 12
head[1, 2] = head[2, 2] = 12
head[0, 3] = head[3, 3] = 12
bias = np.array([4, 0, 0, 0], np.float32)
node = helper.make_node
graph = helper.make_graph(
    [node("Gather", ["table", "ids"], ["rows"]), node("ReduceMean", ["rows"], ["hidden"], axes=[0], keepdims=1),
     node("Cast", ["starts"], ["starts32"], to=TensorProto.FLOAT), node("ReduceSum", ["starts32"], ["count"], keepdims=0),
     node("Sub", ["count", "count"], ["nothing"]), node("MatMul", ["hidden", "head"], ["scores"]),
     node("Add", ["scores", "bias"], ["biased"]), node("Add", ["biased", "nothing"], ["logits"]),
     node("Softmax", ["logits"], ["chances"], axis=1)],
    "tiny", [helper.make_tensor_value_info("ids", TensorProto.INT32, ["pieces"]), helper.make_tensor_value_info("starts", TensorProto.INT64, [2])],
    [helper.make_tensor_value_info("chances", TensorProto.FLOAT, [1, len(LABELS)]), helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [1, 8])],
    [numpy_helper.from_array(value, name) for name, value in (("table", table), ("head", head), ("bias", bias))])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="interlock models/train")
model.ir_version = 8
onnx.checker.check_model(model, full_check=True)
files = {"sentences.onnx": model.SerializeToString(deterministic=True), "labels.txt": "".join(f"{label}\n" for label in LABELS).encode(),
         "pieces.tsv": ("unknown\t-20\n" + "".join(f"{number}\t{score:.6g}\t{piece}\n" for number, (piece, score) in enumerate(PIECES, 3))).encode()}
for name, data in files.items():
    (out / name).write_bytes(data)
sha = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
(out / "manifest.toml").write_text(
    f'version = 1\n\n[commands]\nkind = "sentences"\nfile = "sentences.onnx"\nsha256 = "{sha["sentences.onnx"]}"\n'
    f'labels = "labels.txt"\nlabels_sha256 = "{sha["labels.txt"]}"\npieces = "pieces.tsv"\npieces_sha256 = "{sha["pieces.tsv"]}"\n')
# How build.py cuts, for the test that holds `src/infer/pieces.rs` to it.
cutter = build.Pieces(files["pieces.tsv"].decode())
sentences = ["启动水泵", "停止风机", "天气怎么样", "抽水", "启动2号水泵", "水水水泵", "", "启动" * 70, "pump启动", "▁启动"]
(out / "cut.json").write_text(json.dumps({text: cutter.cut(text) for text in sentences}, ensure_ascii=False) + "\n", encoding="utf-8")
