#!/usr/bin/env python3
"""Cuts what training needs out of the public sets, so that the tree holds no more of them than it uses.

Usage: prepare.py AISHELL3_PAIRS.jsonl CROSSWOZ_OOD.jsonl; writes data/heard.tsv, data/speech.txt, data/crosswoz.txt

`heard.tsv`: what a recogniser wrote, what had been said, how often (substitutions of esun-ai/phonetic_mlm). `speech.txt`:
the reference sentences of the same set of at most 16 characters, 1,500 of them, as ordinary speech. `crosswoz.txt`: user utterances of
thu-coai/CrossWOZ. Both are Apache-2.0; see data/README.md.
"""
import collections
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent / "data"
SPEECH_LEN_MAX = 16
SPEECH_LINES_MAX = 1500


def main():
    counts = collections.Counter()
    speech = []
    for line in open(sys.argv[1], encoding="utf-8"):
        row = json.loads(line)
        for heard, said, _ in row["substitutions"]:
            counts[(heard, said)] += 1
        if 2 <= len(row["ref"]) <= SPEECH_LEN_MAX:
            speech.append(row["ref"])
    with open(HERE / "heard.tsv", "w", encoding="utf-8") as out:
        for (heard, said), n in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
            out.write(f"{heard}\t{said}\t{n}\n")
    with open(HERE / "speech.txt", "w", encoding="utf-8") as out:
        out.writelines(f"{text}\n" for text in list(dict.fromkeys(speech))[:SPEECH_LINES_MAX])
    asked = [json.loads(line)["query"] for line in open(sys.argv[2], encoding="utf-8")]
    with open(HERE / "crosswoz.txt", "w", encoding="utf-8") as out:
        out.writelines(f"{text}\n" for text in dict.fromkeys(asked))


main()
