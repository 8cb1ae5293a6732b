#!/usr/bin/env python3
"""Trains the classifier and writes it beside its manifest and card.

Usage: ./run (which makes the environment first), or `train.py [--out DIR]` in an environment with requirements.txt.

A table of embeddings for hashed grams, their mean over the root of their number, one hidden layer, a softmax whose
temperature was set on generated sentences that training did not see. Weights are 8 bits with a scale a column. The
graph has static shapes (a batch of ROWS utterances, empty rows are zeros) and only common operators, so that an
accelerator can take it. Same seed, same bytes, on one machine; the thresholds over its output are chosen in
`tests/experiments/understanding.rs`, not here.
"""
import argparse
import hashlib
import json
import pathlib
import time

import numpy as np
import onnx
import scipy.sparse as sparse
from onnx import TensorProto, helper, numpy_helper

import generate
import grams

SEED = 20261130
EACH, REJECTS = 600, 46_000
HIDDEN = 64
ROWS = 4
EPOCHS, BATCH, RATE, DECAY = 12, 256, 3e-3, 1e-6
DROPPED = 0.12
MODELS = pathlib.Path(__file__).parent.parent


def matrix(texts):
    indices, starts = [], [0]
    for text in texts:
        found = grams.grams(text)
        indices += found
        starts.append(len(indices))
    values = np.ones(len(indices), np.float32)
    return sparse.csr_matrix((values, indices, starts), (len(texts), grams.VOCABULARY))


def scaled(x):
    counts = np.maximum(np.diff(x.indptr), 1)
    out = x.copy()
    out.data = np.repeat(1 / np.sqrt(counts), np.diff(x.indptr)).astype(np.float32)
    return out


def dropped(x, random):
    """Some grams are lost: a recogniser loses more than it adds."""
    keep = random.random(len(x.data)) > DROPPED
    starts = np.concatenate([[0], np.cumsum(keep)])[x.indptr]
    return sparse.csr_matrix((x.data[keep], x.indices[keep], starts), x.shape)


class Net:
    def __init__(self, labels, random):
        self.table = random.normal(0, 0.3, (grams.VOCABULARY, HIDDEN)).astype(np.float32)
        self.table[0] = 0
        self.bias = np.zeros(HIDDEN, np.float32)
        self.head = random.normal(0, 1 / np.sqrt(HIDDEN), (HIDDEN, labels)).astype(np.float32)
        self.out = np.zeros(labels, np.float32)

    def parts(self):
        return [self.table, self.bias, self.head, self.out]

    def logits(self, x):
        return np.maximum(x @ self.table + self.bias, 0) @ self.head + self.out


def softmax(logits):
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def fit(net, x, y, random):
    moments = [(np.zeros_like(part), np.zeros_like(part)) for part in net.parts()]
    step = 0
    total = EPOCHS * (x.shape[0] // BATCH)
    for epoch in range(EPOCHS):
        order = random.permutation(x.shape[0])
        lost = 0.0
        for at in range(0, x.shape[0] - BATCH + 1, BATCH):
            rows = order[at:at + BATCH]
            batch = scaled(dropped(x[rows], random))
            sums = batch @ net.table + net.bias
            hidden = np.maximum(sums, 0)
            chances = softmax(hidden @ net.head + net.out)
            lost -= np.log(chances[np.arange(BATCH), y[rows]] + 1e-9).mean()
            # Smoothed targets keep the confidence honest.
            error = chances - 0.04 / chances.shape[1]
            error[np.arange(BATCH), y[rows]] -= 0.96
            error /= BATCH
            back = (error @ net.head.T) * (sums > 0)
            grads = [np.asarray(batch.T @ back), back.sum(0), hidden.T @ error, error.sum(0)]
            step += 1
            rate = RATE * 0.5 * (1 + np.cos(np.pi * step / total))
            for part, grad, (first, second) in zip(net.parts(), grads, moments):
                first *= 0.9
                first += 0.1 * grad
                second *= 0.999
                second += 0.001 * grad * grad
                part -= rate * (first / (1 - 0.9 ** step) / (np.sqrt(second / (1 - 0.999 ** step)) + 1e-8) + DECAY * part)
        print(f"epoch {epoch + 1}: loss {lost / (x.shape[0] // BATCH):.3f}", flush=True)


def temperature(logits, y):
    """The one number that makes the confidence of unseen sentences true (least log loss)."""
    best = min((-np.log(softmax(logits / t)[np.arange(len(y)), y] + 1e-9).mean(), t) for t in np.arange(0.4, 3.01, 0.05))
    return round(float(best[1]), 2)


def eight_bits(weights):
    scale = np.abs(weights).max(0) / 127
    return np.round(weights / scale).astype(np.int8), scale.astype(np.float32)


def calibration_error(chances, y):
    sure, right = chances.max(1), chances.argmax(1) == y
    error = 0.0
    for low in np.arange(0, 1, 0.1):
        inside = (sure > low) & (sure <= low + 0.1)
        if inside.any():
            error += inside.mean() * abs(sure[inside].mean() - right[inside].mean())
    return float(error)


def graph(net, degree, labels):
    table, table_scale = eight_bits(net.table)
    head, head_scale = eight_bits(net.head / degree)
    constants = {
        "table": table, "table_scale": table_scale, "bias": net.bias, "head": head, "head_scale": head_scale,
        "out": (net.out / degree).astype(np.float32), "zero": np.int32(0), "one": np.float32(1), "axis": np.array([1], np.int64),
    }
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "grams"], ["picked8"]),
        node("Cast", ["picked8"], ["picked"], to=TensorProto.FLOAT),
        node("ReduceSum", ["picked", "axis"], ["sum8"], keepdims=0),
        node("Mul", ["sum8", "table_scale"], ["sum"]),
        node("Greater", ["grams", "zero"], ["there"]),
        node("Cast", ["there"], ["there32"], to=TensorProto.FLOAT),
        node("ReduceSum", ["there32", "axis"], ["found"], keepdims=1),
        node("Max", ["found", "one"], ["count"]),
        node("Sqrt", ["count"], ["root"]),
        node("Div", ["sum", "root"], ["mean"]),
        node("Add", ["mean", "bias"], ["biased"]),
        node("Relu", ["biased"], ["hidden"]),
        node("Cast", ["head"], ["head32"], to=TensorProto.FLOAT),
        node("MatMul", ["hidden", "head32"], ["scores8"]),
        node("Mul", ["scores8", "head_scale"], ["scores"]),
        node("Add", ["scores", "out"], ["logits"]),
        node("Softmax", ["logits"], ["chances"], axis=1),
    ]
    made = helper.make_graph(
        nodes, "interlock-commands",
        [helper.make_tensor_value_info("grams", TensorProto.INT32, [ROWS, grams.GRAMS_MAX])],
        [helper.make_tensor_value_info("chances", TensorProto.FLOAT, [ROWS, len(labels)]),
         # What the head decides on: what was learned bends a head of its own on it.
         helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [ROWS, HIDDEN])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], producer_name="interlock models/train")
    model.ir_version = 8
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString(deterministic=True)


def by_onnx(file, texts):
    """What the written file says, through ONNX Runtime: the scores are those of the file, not of the network."""
    import onnxruntime
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    out = []
    for at in range(0, len(texts), ROWS):
        rows = np.zeros((ROWS, grams.GRAMS_MAX), np.int32)
        part = texts[at:at + ROWS]
        for row, text in zip(rows, part):
            found = grams.grams(text)
            row[:len(found)] = found
        out.append(session.run(None, {"grams": rows})[0][:len(part)])
    return np.concatenate(out)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def sources():
    """The hash over all that the sentences are made of."""
    root = MODELS.parent
    files = ["models/commands/commands.toml", "models/lexicon/plant.toml", "models/train/generate.py", "models/train/grams.py"]
    files += [f"models/train/data/{name}" for name in ("crosswoz.txt", "heard.tsv", "speech.txt")]
    return sha(b"".join(sha((root / name).read_bytes()).encode() for name in files))


def corpus(name, file, labels):
    """Scores on rows that training did not see: right, wrong and taken by the classifier alone."""
    path = MODELS.parent / "tests" / "data" / "corpus" / name
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]
    rows = [row for row in rows if "query" in row and row.get("kind") != "new_tool"]
    texts = ["".join(ch.lower() for ch in row["query"] if ch.isalnum() or ch in ".%") for row in rows]
    chances = by_onnx(file, texts)
    y = np.array([labels.index(row["expected_command"]) if row["expected_command"] in labels else 0 for row in rows])
    best, sure = chances.argmax(1), chances.max(1)
    commands = y > 0
    line = {"rows": int(commands.sum()), "right": int((best == y)[commands].sum()), "null_rows": int((~commands).sum()),
            "calibration_error": round(calibration_error(chances, y), 3)}
    for limit in (0.5, 0.8, 0.95):
        taken = (sure >= limit) & (best > 0)
        key = str(limit).replace("0.", "at_")
        line[key] = {"right": int((taken & (best == y)).sum()), "wrong": int((taken & (best != y) & commands).sum()),
                     "null_taken": int((taken & ~commands).sum())}
    return line


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--out", type=pathlib.Path, default=MODELS / "classifier")
    out = options.parse_args().out
    out.mkdir(exist_ok=True)
    begun = time.monotonic()
    random = np.random.default_rng(SEED)
    pairs, labels = generate.dataset(SEED, EACH, REJECTS)
    texts, y = [text for text, _ in pairs], np.array([label for _, label in pairs])
    unseen, unseen_labels = generate.dataset(SEED + 1, EACH // 12, REJECTS // 12)
    print(f"{len(texts)} sentences, {int((y == 0).sum())} of them no command; {time.monotonic() - begun:.0f} s", flush=True)
    net = Net(len(labels), random)
    fit(net, matrix(texts), y, random)
    seen = set(texts)
    fresh = [(text, label) for text, label in unseen if text not in seen]
    fresh_y = np.array([label for _, label in fresh])
    logits = net.logits(scaled(matrix([text for text, _ in fresh])))
    degree = temperature(logits, fresh_y)
    print(f"unseen: {(logits.argmax(1) == fresh_y).mean():.4f} right of {len(fresh)}, temperature {degree}")

    data = graph(net, degree, labels)
    file = out / "commands.onnx"
    file.write_bytes(data)
    (out / "labels.txt").write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")
    readings = "".join(grams.folded(grams.READINGS.get(chr(code), "")) + "\n" for code in range(0x4E00, 0xA000))
    samples = ["启动二号水泵", "把一号泵的频率调到三十五赫兹", "agv去充电", "甭开那台风机", "女吕轮", "a", "停" * 60, texts[0], texts[1]]
    vectors = {"readings_sha256": sha(readings.encode()), "grams": {text: grams.grams(text) for text in samples}}
    (pathlib.Path(__file__).parent / "grams.json").write_text(json.dumps(vectors, ensure_ascii=False) + "\n", encoding="utf-8")

    scores = {name: corpus(f"{name}.jsonl", file, labels)
              for name in ("dev", "paraphrases-1", "paraphrases-2", "paraphrases-3", "extra_real_asr", "rejects-3")}
    lines = [
        "# Models of this tree. `interlock` verifies the hash before it loads a file; `models/train/run` writes the first table.",
        "version = 1", "", "[commands]", f'file = "classifier/commands.onnx"', f'sha256 = "{sha(data)}"', f"bytes = {len(data)}",
        f'labels = "classifier/labels.txt"', f'labels_sha256 = "{sha((out / "labels.txt").read_bytes())}"',
        'licence = "Apache-2.0"', f"seed = {SEED}", f'data_sha256 = "{sources()}"',
        f"sentences = {len(texts)}", f"temperature = {degree}",
        "# Of the classifier alone, by the best label and at three confidences; the cascade never lets it act alone.",
    ] + [f"[commands.scores.{name}]\n" + "\n".join(f"{key} = {toml(value)}" for key, value in line.items()) for name, line in scores.items()]
    manifest = MODELS / "manifest.toml"
    kept = ""
    if manifest.exists() and "\n# ---- Optional" in manifest.read_text(encoding="utf-8"):
        kept = "\n# ---- Optional" + manifest.read_text(encoding="utf-8").split("\n# ---- Optional", 1)[1]
    manifest.write_text("\n".join(lines) + "\n" + kept, encoding="utf-8")
    for name, line in scores.items():
        print(name, line)
    print(f"{len(data)} bytes; {time.monotonic() - begun:.0f} s")


main()
