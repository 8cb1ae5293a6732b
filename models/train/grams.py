"""From a text to the numbers that the classifier sees. `src/domain/command/grams.rs` does the very same: the vectors in
`grams.json` are made here and tested there, and so is the hash over all readings.
"""
import unicodedata

from pypinyin.pinyin_dict import pinyin_dict

# Grams of characters hash into the first table and grams of syllables into the second; 0 is no gram.
CHAR_BUCKETS = 4096
SOUND_BUCKETS = 4096
VOCABULARY = 1 + CHAR_BUCKETS + SOUND_BUCKETS
# A longer utterance gives more grams than this and is not classified.
GRAMS_MAX = 192
N_MAX = 3

# Runs of these are one number. 点 and 半 are not among them: they are words as often as numbers.
DIGITS = set("0123456789.零〇一二两三四五六七八九十百千万幺洞拐俩")
NUMBER, EDGE = "#", "|"

# The usual reading on a plant where it is not the dictionary's first; the list of `sound.rs`.
USUAL = {
    "重": "chong", "调": "tiao", "降": "jiang", "行": "xing", "载": "zai", "传": "chuan", "量": "liang", "参": "can",
    "系": "xi", "夹": "jia", "卡": "ka", "长": "chang", "转": "zhuan", "数": "shu", "地": "di", "得": "de", "都": "dou",
    "还": "hai", "没": "mei", "只": "zhi", "着": "zhe", "单": "dan", "查": "cha", "石": "shi", "扎": "zha", "露": "lu",
    "冲": "chong",
}


def plain(reading):
    """Without its tone; ü stays."""
    marks = unicodedata.normalize("NFD", reading)
    kept = "".join(ch for ch in marks if unicodedata.category(ch) != "Mn" or ch in "\u0302\u0308")
    return unicodedata.normalize("NFC", kept)


READINGS = {
    chr(code): USUAL.get(chr(code)) or plain(readings.split(",")[0])
    for code, readings in pinyin_dict.items()
    if 0x4E00 <= code <= 0x9FFF
}


def folded(syllable):
    """What regions and recognisers do not keep apart becomes one."""
    for long, short in (("zh", "z"), ("ch", "c"), ("sh", "s"), ("n", "l"), ("r", "l"), ("f", "h")):
        if syllable.startswith(long):
            syllable = short + syllable[len(long):]
            break
    for long, short in (("ang", "an"), ("eng", "en"), ("ing", "in")):
        if syllable.endswith(long):
            return syllable[: -len(long)] + short
    return syllable


def fnv(text):
    value = 0x811C9DC5
    for byte in text.encode("utf-8"):
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def symbols(text):
    out = []
    for ch in text:
        if ch in DIGITS:
            if out and out[-1] == NUMBER:
                continue
            ch = NUMBER
        out.append(ch)
    return out


def grams(text):
    """The numbers of a normal text, sorted and each once; empty when there are too many."""
    chars = [EDGE] + symbols(text) + [EDGE]
    sounds = [folded(READINGS[ch]) if ch in READINGS else ch for ch in chars]
    found = set()
    for n in range(1, N_MAX + 1):
        for at in range(len(chars) - n + 1):
            if n == 1 and chars[at] == EDGE:
                continue
            found.add(1 + fnv("".join(chars[at:at + n])) % CHAR_BUCKETS)
            found.add(1 + CHAR_BUCKETS + fnv(" ".join(sounds[at:at + n])) % SOUND_BUCKETS)
    return sorted(found) if len(found) <= GRAMS_MAX else []
