"""Sentences to learn from, made of the command templates and the lexicon; nothing of the corpus is looked at.

Positive: the forms of each command, other words for its words, other orders, fillers, and what recognisers make of
them. Negative: commands that are forbidden, asked about, reported, put off or told; things that no command has; pieces
of commands; ordinary speech.
"""
import collections
import itertools
import pathlib
import random
import tomllib

import grams

HERE = pathlib.Path(__file__).parent
MODELS = HERE.parent

CN = "零一二三四五六七八九"
SAID_LATER = ["多少", "是多少", "怎么样", "给我看看", "报一下", "查一下", "看一下", "有多少"]
LEADS = ["", "", "", "", "麻烦", "请", "帮我", "请帮我", "给我", "嗯", "呃那个", "来", "现在", "马上", "赶紧", "小控", "师傅", "快", "你去", "我要"]
TRAILS = ["", "", "", "", "一下", "吧", "啊", "好吧", "谢谢", "呗", "哈", "了吧", "马上", "就行"]
NEGATED = ["不要{}", "别{}", "先别{}", "不用{}", "禁止{}", "不准{}", "不许{}", "千万别{}", "暂时不{}", "不能{}", "没让你{}",
           "不需要{}", "谁也不许{}", "我没说{}", "还不能{}", "严禁{}", "切勿{}", "先不{}", "不是要{}", "甭{}"]
ASKED = ["怎么{}", "如何{}", "为什么{}", "{}了吗", "{}了没有", "{}会怎么样", "{}需要几个人", "{}要多长时间", "{}的条件", "{}之前做什么",
         "{}的步骤", "谁{}的", "{}要满足什么条件", "什么时候{}", "能不能{}", "要不要{}", "{}几次了", "{}次数", "{}有什么影响", "{}是什么意思",
         "{}之后怎么恢复", "{}多久才能再投", "{}按钮在哪里", "{}失败怎么处理", "{}注意什么"]
TOLD = ["他说{}", "老王说{}", "老张要{}", "师傅让小李{}", "听说要{}", "他们在{}", "班长叫他{}", "如果{}会怎么样", "如果满了就{}", "等我说再{}",
        "等一会儿再{}", "十分钟后{}", "明天{}", "昨天{}", "刚才{}", "上次{}", "谁刚才{}", "已经{}了", "{}的时候注意", "万一{}", "要是{}",
        "下班以后{}", "上午{}过了", "有人{}", "{}过了", "{}的话告诉我", "每次{}都响", "想起来昨天{}"]
TALK = """今天天气不错 帮我点一份外卖 讲个笑话 明天早上叫我起床 放一首歌 高铁几点到 你叫什么名字 股市今天涨了吗 给家里打个电话 帮我订张票 附近有加油站吗
一加二等于几 比赛谁赢了 翻译成英文 我想吃面条 唱首歌 下班去喝酒 你那边忙完没 昨晚睡得好吗 中午吃什么 好的知道了 喂听得到吗 工资发了吗 查一下快递 周末去哪玩 你觉得呢
孩子放学了 食堂今天有鱼 车停在门口 去不去爬山 生日快乐 新年好 几点下班 谁有空 把门口的快递拿一下 帮我买瓶水 空气真好 这个月水电费多少 手机没电了 借我个充电器 电视声音太大
今天星期几 现在几点了 油价又涨了 路上堵车 开会去了 等会儿见 谁把我的手套拿走了 厕所没水了 热水器坏了 办公室空调费电 你先去吃饭 我去打个水 煮粥放多少米 下班一起去喝茶
这件衣服多少钱 医院怎么走 打开课本 关注公众号 停车费多少 开车小心 启动资金不够 关心一下同事 开个玩笑 停水通知 打开话匣子 闭上眼睛 关于这件事 开始上课 停止营业 系统学习 升职加薪
调节心情 恢复健康 复习功课 取消订单 暂停营业 查询余额 查看航班 导出照片 备份手机 重启手机 打开电视 关闭电脑 锁好自行车 充值话费 去原料市场""".split()


# ---- The templates ---------------------------------------------------------------------------------------------------

def parse(text, at=0, until=""):
    """A template of hassil's syntax as nested lists: text, ("slot", name), ("choice", [branches])."""
    branches, parts = [], []
    while at < len(text):
        ch = text[at]
        if ch in until:
            break
        if ch == "|":
            branches.append(parts)
            parts = []
            at += 1
        elif ch in "([":
            inner, at = parse(text, at + 1, ")" if ch == "(" else "]")
            parts.append(("choice", inner + ([[]] if ch == "[" else [])))
            at += 1
        elif ch == "{":
            end = text.index("}", at)
            parts.append(("slot", text[at + 1:end]))
            at = end + 1
        else:
            parts.append(ch)
            at += 1
    branches.append(parts)
    return branches, at


def expand(branches, random):
    out = []
    for part in random.choice(branches):
        if isinstance(part, str):
            out.append(part)
        elif part[0] == "slot":
            out.append(part)
        else:
            out.extend(expand(part[1], random))
    return out


# ---- The lexicon -----------------------------------------------------------------------------------------------------

class Lexicon:
    def __init__(self, file):
        with open(file, "rb") as handle:
            raw = tomllib.load(handle)
        self.words = {kind: raw[kind] for kind in ("action", "attribute", "noun")}
        self.classes = collections.defaultdict(list)
        for kind, classes in self.words.items():
            for name, words in classes.items():
                for word in words:
                    self.classes[word].append((kind, name))
        self.query = set(raw["query"])
        self.others = [word for words in raw["other"].values() for word in words]
        self.longest = max(map(len, self.classes))

    def segment(self, text):
        """Words by the fewest characters that no word explains, then by the fewest words."""
        best = [(0, 0, [])] + [None] * len(text)
        for at in range(len(text)):
            if best[at] is None:
                continue
            unknown, count, words = best[at]
            options = [(text[at], 1)]
            options += [(text[at:at + n], 0) for n in range(1, self.longest + 1) if text[at:at + n] in self.classes]
            for word, cost in options:
                to = at + len(word)
                if to > len(text):
                    continue
                offer = (unknown + cost, count + 1, words + [word])
                if best[to] is None or offer[:2] < best[to][:2]:
                    best[to] = offer
        return best[-1][2]


class Command:
    """A command with, for each of its words, the class that the most of its forms agree on."""

    def __init__(self, raw, lexicon):
        self.id, self.risk = raw["id"], raw["risk"]
        self.texts = [raw["text"]] + raw.get("aliases", [])
        self.patterns = [parse(pattern)[0] for pattern in raw["patterns"]]
        self.slots = {slot["name"]: slot["type"] for slot in raw.get("slots", [])}
        votes = collections.Counter()
        for text in self.texts:
            votes.update({name for word in lexicon.segment(text) for name in lexicon.classes.get(word, [])})
        self.votes = votes
        self.lexicon = lexicon

    def meaning(self, word):
        known = self.lexicon.classes.get(word, [])
        return max(known, key=lambda name: self.votes[name], default=None)


def load():
    lexicon = Lexicon(MODELS / "lexicon" / "plant.toml")
    with open(MODELS / "commands" / "commands.toml", "rb") as handle:
        raw = tomllib.load(handle)
    return [Command(one, lexicon) for one in raw["command"]], raw["zones"], lexicon


# ---- Recogniser noise ------------------------------------------------------------------------------------------------

class Noise:
    """What a recogniser makes of a character: another of the same sound, of a near one, or what was really seen."""

    def __init__(self, random, texts):
        self.random = random
        counts = collections.Counter(ch for text in texts for ch in text if ch in grams.READINGS)
        self.same = collections.defaultdict(list)
        for ch, n in counts.items():
            self.same[grams.READINGS[ch]].append((ch, n ** 0.5))
        self.folded = collections.defaultdict(list)
        for syllable, chars in self.same.items():
            self.folded[grams.folded(syllable)] += chars
        self.seen = collections.defaultdict(list)
        for line in open(HERE / "data" / "heard.tsv", encoding="utf-8"):
            heard, said, n = line.rstrip("\n").split("\t")
            self.seen[said].append((heard, int(n) ** 0.5))

    def pick(self, options, but):
        options = [(ch, weight) for ch, weight in options if ch != but]
        if not options:
            return but
        chars, weights = zip(*options)
        return self.random.choices(chars, weights)[0]

    def char(self, ch):
        if ch not in grams.READINGS or ch in grams.DIGITS:
            return ch
        kind = self.random.random()
        if kind < 0.4:
            return self.pick(self.same[grams.READINGS[ch]], ch)
        if kind < 0.5:
            return self.pick(self.folded[grams.folded(grams.READINGS[ch])], ch)
        return self.pick(self.seen[ch], ch)

    def of(self, text):
        kind = self.random.random()
        if kind < 0.3 or len(text) < 3:
            return text
        if kind < 0.85:
            rate = self.random.choice([0.15, 0.3, 0.5])
            text = "".join(self.char(ch) if self.random.random() < rate else ch for ch in text)
        if kind > 0.75:
            at = self.random.randrange(len(text))
            text = text[:at] + (text[at] * 2 if self.random.random() < 0.25 else "") + text[at + 1:]
        return text


# ---- Sentences -------------------------------------------------------------------------------------------------------

class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.commands, self.zones, self.lexicon = load()
        data = HERE / "data"
        self.speech = [line.strip() for name in ("speech.txt", "crosswoz.txt")
                       for line in open(data / name, encoding="utf-8")]
        self.speech = ["".join(ch for ch in text if ch.isalnum()) for text in self.speech]
        texts = self.speech + [text for command in self.commands for text in command.texts]
        self.noise = Noise(self.random, texts)
        self.forms = {text for command in self.commands for text in command.texts}

    def value(self, kind):
        number = self.random.randrange(1, 100)
        said = CN[number] if number < 10 else (CN[number // 10] if number >= 20 else "") + "十" + (CN[number % 10] if number % 10 else "")
        plain = self.random.choice([said, said, str(number)])
        match kind:
            case "device_no":
                return self.random.choice(CN[1:]) + "号" if self.random.random() < 0.85 else str(number) + "号"
            case "percent":
                return self.random.choice(["百分之" + said, plain + "%", self.random.choice(CN[1:]) + "成", plain])
            case "duration_s":
                return plain + self.random.choice(["秒", "分钟", "小时"])
            case "digits":
                return "".join(self.random.choices(CN[1:] + "幺洞拐", k=3))
            case "zone":
                return self.random.choice(self.zones)
            case _:
                return plain

    def words(self, command):
        """One form of the command, as words; slots filled."""
        pick = self.random.random()
        if pick < 0.6:
            parts = expand(self.random.choice(command.patterns), self.random)
            pieces, run = [], ""
            for part in parts + [None]:
                if isinstance(part, str):
                    run += part
                    continue
                pieces += [("word", word) for word in self.lexicon.segment(run)] if run else []
                run = ""
                if part:
                    pieces.append(("slot", self.value(command.slots.get(part[1], "number"))))
            return pieces
        pieces = [("word", word) for word in self.lexicon.segment(self.random.choice(command.texts))]
        if pick < 0.75 and "device_no" in command.slots.values():
            nouns = [at for at, (_, word) in enumerate(pieces) if (command.meaning(word) or ("", ""))[0] == "noun"]
            if nouns:
                pieces.insert(nouns[0], ("slot", self.value("device_no")))
        return pieces

    def positive(self, command):
        pieces = self.words(command)
        rate = self.random.choice([0, 0.3, 0.6])
        said = []
        for kind, word in pieces:
            meaning = command.meaning(word) if kind == "word" else None
            if meaning and self.random.random() < rate:
                word = self.random.choice(self.lexicon.words[meaning[0]][meaning[1]])
            said.append((meaning[0] if meaning else kind, word))
        verbs = [word for kind, word in said if kind == "action"]
        things = [word for kind, word in said if kind != "action"]
        order = self.random.random()
        whole = "".join(word for _, word in said)
        # A setting keeps its order: its value stands behind its verb.
        moves = len(verbs) == 1 and not any(kind == "slot" and not word.endswith("号") for kind, word in said)
        if moves and order < 0.15:
            whole = self.random.choice(["把", "把", "给", "将"]) + "".join(things) + verbs[0]
        elif moves and order < 0.3:
            whole = "".join(things) + self.random.choice(["", "", "给我", "给"]) + verbs[0]
        elif command.risk == "read" and order < 0.5:
            whole = "".join(word for kind, word in said if word not in self.lexicon.query)
            whole += self.random.choice(SAID_LATER)
        text = self.random.choice(LEADS) + whole + self.random.choice(TRAILS)
        return self.noise.of(text)

    def negative(self):
        kind = self.random.random()
        command = self.random.choice(self.commands)
        acting = command
        while acting.risk == "read":
            acting = self.random.choice(self.commands)
        form = "".join(word for _, word in self.words(acting))
        if kind < 0.2:
            return self.noise.of(self.random.choice(NEGATED).format(form))
        if kind < 0.25:
            words = self.words(acting)
            at = next((n for n, (_, word) in enumerate(words) if (acting.meaning(word) or ("",))[0] == "action"), 0)
            no = self.random.choice(["不要", "别", "先别", "先不", "不用", "不准", "不许", "不能"])
            return self.noise.of("".join(word for _, word in words[:at]) + no + "".join(word for _, word in words[at:]))
        if kind < 0.4:
            return self.noise.of(self.random.choice(ASKED).format(form))
        if kind < 0.55:
            return self.noise.of(self.random.choice(TOLD).format(form))
        if kind < 0.7:
            verb = self.random.choice(self.random.choice(list(self.lexicon.words["action"].values())))
            other = self.random.choice(self.lexicon.others)
            if self.random.random() < 0.3:
                other += self.random.choice(self.random.choice(list(self.lexicon.words["attribute"].values())))
                verb = self.random.choice(["", "查看", "看一下"])
            number = self.random.choice(["", "", "一号", "二号"])
            return self.noise.of(self.random.choice([verb + number + other, number + other + verb, "把" + other + verb]))
        if kind < 0.78:
            words = [word for _, word in self.words(command)]
            text = self.random.choice(words)
            return text if text not in self.forms else self.random.choice(TALK)
        if kind < 0.86:
            return self.noise.of(self.random.choice(TALK))
        return self.random.choice(self.speech)


def dataset(seed, each, rejects):
    """Pairs of text and label; label 0 is "no command", the others follow the order of the commands."""
    maker = Maker(seed)
    rows = {}
    for label, command in enumerate(maker.commands, 1):
        texts = list(command.texts) + [maker.positive(command) for _ in range(each)]
        rows.update((text, label) for text in texts)
    for text in itertools.chain(maker.speech, TALK, (maker.negative() for _ in range(rejects))):
        # A sentence that some command was made to say stays a command.
        rows.setdefault(text, 0)
    pairs = sorted(rows.items())
    maker.random.shuffle(pairs)
    return pairs, ["none"] + [command.id for command in maker.commands]
