#!/usr/bin/env python3
"""How often recognisers mistake one initial or final for another, as costs.

Usage: pip install pypinyin; confusions.py PAIRS.jsonl > ../lexicon/confusions.toml

PAIRS.jsonl holds lines {"substitutions": [[heard, said, position], ...]} (real recogniser output beside its
reference; esun-ai/phonetic_mlm, Apache-2.0). The cost of a pair is max(12, 62 - 85 * sqrt(n / sqrt(t_a * t_b)))
hundredths of a syllable, n = substitutions between a and b in either direction (at least 2), t = all substitutions
that a (or b) takes part in with its part of the syllable kept or not. Regional pairs are fixed by hand below,
because a reading corpus shows too little of them.
"""
import collections
import json
import math
import sys

from pypinyin import Style, pinyin

INITIALS = ["zh", "ch", "sh"] + list("bpmfdtnlgkhjqxrzcsyw")
REGIONAL_INITIALS = {("z", "zh"): 10, ("c", "ch"): 10, ("s", "sh"): 10, ("l", "n"): 10, ("f", "h"): 20, ("l", "r"): 20}
REGIONAL_FINALS = {("an", "ang"): 10, ("en", "eng"): 10, ("in", "ing"): 10, ("ian", "iang"): 10, ("uan", "uang"): 10}


def split(syllable):
    for initial in INITIALS:
        if syllable.startswith(initial):
            final = syllable[len(initial):]
            if initial in "jqxy" and final.startswith("u"):
                final = "v" + final[1:]
            return initial, final
    return "", syllable


def reading(char):
    found = pinyin(char, style=Style.NORMAL, errors="ignore")
    return found[0][0].replace("ü", "v") if found else None


def main():
    pairs = [collections.Counter(), collections.Counter()]
    totals = [collections.Counter(), collections.Counter()]
    for line in open(sys.argv[1], encoding="utf-8"):
        for heard, said, _ in json.loads(line)["substitutions"]:
            a, b = reading(heard), reading(said)
            if not a or not b:
                continue
            for part, (x, y) in enumerate(zip(split(a), split(b))):
                totals[part][x] += 1
                totals[part][y] += 1
                if x != y:
                    pairs[part][tuple(sorted((x, y)))] += 1
    print("# Costs of mistaking one initial or final for another, in hundredths of a syllable.")
    print("# Made by models/train/confusions.py from the recogniser errors of esun-ai/phonetic_mlm (Apache-2.0).")
    print("version = 1")
    print("# What a pair costs that was seen less than twice.\nother = 60")
    for name, part, regional in (("initial", 0, REGIONAL_INITIALS), ("final", 1, REGIONAL_FINALS)):
        costs = dict(regional)
        for (x, y), n in pairs[part].items():
            if n >= 2 and (x, y) not in costs:
                cost = max(12, round(62 - 85 * math.sqrt(n / math.sqrt(totals[part][x] * totals[part][y]))))
                if cost < 58:
                    costs[(x, y)] = cost
        print(f"{name}s = [")
        for (x, y), cost in sorted(costs.items()):
            print(f'  ["{x}", "{y}", {cost}],')
        print("]")


main()
