//! Whether a sentence speaks of another thing than the command's: 喷淋水泵, 食堂的空调, 冷干机组, 皮带秤.
//!
//! A plant has more things than a command set has words. What stands before a known name, behind it or in the middle of
//! it may make another name of it, and a wrong device is worse than none: such a reading does nothing. It can still be
//! asked about.

use super::definition::Definition;
use super::frame::Frame;
use super::lattice::Found;
use super::score::{Role, Scene, Step};
use crate::risk::Risk;

/// Shortest name of which a strange syllable makes another; of a shorter one it costs too much anyway.
const STRANGE_LEN_MIN: usize = 3;
/// What a syllable costs that sounds like nothing of the word, in hundredths.
const STRANGE: u8 = 90;
/// Unknown characters before a command that may name somebody.
const SOMEBODY_LEN_MIN: usize = 2;
/// Particles: what sounds like one behind a name is one that was misheard, and no part of the name.
const PARTICLES: &str = "吧啊呀了啦呗嘛哈呢哦喽哟诶嗯呃额下哎";

impl Scene<'_> {
    /// How many things of the reading are qualified by something that nobody knows: what stands right before a name
    /// (喷淋 before 水泵), or whose it is (仓库的 before 灯).
    pub(super) fn others(&self, command: &Definition, path: &[Step], first: usize, reason: bool) -> u16 {
        // 喷淋二号水泵: the number does not change whose it is.
        let named = |at: &usize| {
            let before = path[..*at].iter().rev().find(|step| !matches!(step.role, Role::Amount(_)));
            let Some(before) = before.filter(|_| path[*at].role == Role::Need) else { return false };
            let counts = !(reason && before.end <= path[first].start);
            counts && (before.role == Role::Foreign || (before.role == Role::Unknown && self.could_name(before)))
        };
        let owned = |three: &&[Step]| {
            let [owner, of, thing] = three else { return false };
            let chars = &self.utterance.chars[usize::from(of.start)..usize::from(of.end)];
            let is_of = of.role == Role::Filler && *chars == ['的'];
            let unknown = |step: &Step| is_unexplained(step) && self.could_name(step);
            // 大门的锁 is no gate either, though 锁 is a verb elsewhere.
            let part = unknown(thing) || (thing.role == Role::Verb && path[..first + 1].iter().any(is_verb));
            is_of && ((unknown(owner) && thing.role == Role::Need) || (owner.role == Role::Need && part))
        };
        let all = (1..path.len()).filter(named).count()
            + if command.risk == Risk::Read { 0 } else { path.windows(3).filter(owned).count() };
        u16::try_from(all).unwrap_or(u16::MAX)
    }

    /// 皮带秤, 主轴箱: the last part of a name says what it is, so a name that goes on is another. What follows must be the
    /// end or the verb: 水泵置于自动 speaks of the pump.
    pub(super) fn goes_on(&self, path: &[Step]) -> bool {
        (1..path.len()).any(|at| {
            let (name, more) = (&path[at - 1], &path[at]);
            let is_name = matches!(name.role, Role::Need | Role::Both);
            let rest = path[at..].iter().skip_while(|step| is_unexplained(step));
            let mut after = rest.skip_while(|step| self.is_handing_over(step));
            is_name
                && is_unexplained(more)
                && self.could_name(more)
                && !self.is_stammer(more)
                && !self.is_other_verb(more)
                && after.next().is_none_or(is_verb)
        })
    }

    /// Whether what sounds like a verb, or says where, is a part of the name: a certain verb is there already, or 把 says
    /// what it is done to.
    pub(super) fn is_qualified(&self, path: &[Step]) -> bool {
        let certain = path.iter().any(|step| is_verb(step) && step.exact);
        // 酸阀 behind 关闭, which sounds a little like 关阀.
        let guessed = certain && path.iter().any(|step| step.role == Role::Both && !step.exact);
        guessed || goes_on_like_a_verb(path) || (1..path.len()).any(|at| self.belongs_to_the_name(path, at, certain))
    }

    /// 送风水泵 behind 启动, 应急水泵 behind 停止, 回水阀 behind 关闭: what stands between the verb and the first name. A verb of one
    /// character begins many others (停下).
    fn belongs_to_the_name(&self, path: &[Step], at: usize, certain: bool) -> bool {
        let (before, more) = (&path[at - 1], &path[at]);
        let text = |step: &Step| &self.utterance.chars[usize::from(step.start)..usize::from(step.end)];
        // 水泵切换成人工: the name was said before. 干活了，启动皮带机: a clause of its own.
        let is_between = path.get(at + 1).is_some_and(|name| name.role == Role::Need)
            && !path[..at].iter().any(|step| step.role == Role::Need)
            && !self.breaks_before(more.start);
        let is_object = before.role == Role::Filler && matches!(text(before), ['把' | '将']);
        let behind_verb = (is_verb(before) && is_long(before)) || before.role == Role::Unknown;
        let says_where = match text(more) {
            ['上' | '回'] => is_object || behind_verb,
            // 启动下水泵 is said for 启动一下水泵.
            ['下'] => is_object,
            _ => false,
        };
        let said = is_object || path[..at].iter().any(is_verb) || (certain && !more.exact);
        is_between && ((more.role == Role::Filler && says_where) || (is_verb(more) && is_long(more) && said))
    }

    /// 新泵 for 新风, 水灯 for 水泵: what only sounds like the name has another thing in it, written just so.
    pub(super) fn has_another_inside(&self, frame: &Frame, step: &Step) -> bool {
        if step.role != Role::Need || step.exact {
            return false;
        }
        let places = self.starts[usize::from(step.start)]..self.starts[usize::from(step.end)];
        self.found[usize::from(places.start)..usize::from(places.end)].iter().any(|found| {
            let concepts = self.words.concepts(self.words.word(found.word));
            let needed = concepts.iter().any(|concept| frame.needs().contains(concept));
            found.exact && found.end <= step.end && !concepts.is_empty() && !needed
        })
    }

    /// 转手, 转移: a verb of one character that goes on is another verb.
    pub(super) fn verb_goes_on(&self, path: &[Step]) -> bool {
        let [before @ .., verb, more] = path else { return false };
        verb.role == Role::Verb
            && !before.iter().any(is_verb)
            && verb.end - verb.start == 1
            && more.role == Role::Unknown
            && self.could_name(more)
            && !self.is_stammer(more)
    }

    /// 小明 before 启动水泵: two characters or more that nobody knows may be somebody, a word of another language that
    /// forbids, or what the rest is the name of. A break or 了 ends a reason instead.
    pub(super) fn is_somebodys(&self, path: &[Step], first: usize, reason: bool) -> bool {
        let unknown = path[..first].iter().filter(|step| step.role == Role::Unknown);
        // 自动关闭阀门 tells what the plant does by itself.
        let named = path[..first].last().is_some_and(|step| step.role == Role::Foreign);
        !reason && (named || unknown.count() >= SOMEBODY_LEN_MIN)
    }

    /// 关 in 阀门关小到两成: the beginning of what is done, and no part of the name.
    fn is_other_verb(&self, step: &Step) -> bool {
        let places = self.starts[usize::from(step.start)]..self.starts[usize::from(step.start) + 1];
        let found = &self.found[usize::from(places.start)..usize::from(places.end)];
        let is_plain_verb = |one: &Found| {
            let word = self.words.word(one.word);
            one.exact && word.actions != 0 && self.words.concepts(word).is_empty()
        };
        step.role == Role::Unknown && found.iter().any(is_plain_verb)
    }

    /// What stands between a thing and its verb (给我, 把) or ends a sentence, and says nothing of the thing; 慢一点 does.
    fn is_handing_over(&self, step: &Step) -> bool {
        let last = self.utterance.chars[usize::from(step.end) - 1];
        step.role == Role::Filler && !"了点会些".contains(last)
    }

    /// A particle by its sound, or the character before it once more.
    fn is_stammer(&self, step: &Step) -> bool {
        let at = usize::from(step.start);
        let chars = &self.utterance.chars;
        let sounds = |particle: char| self.utterance.readings[at].contains(&self.sounds.usual(particle));
        (at > 0 && chars[at - 1] == chars[at]) || PARTICLES.chars().any(sounds)
    }

    /// 冷干机组 for 冷水机组: one syllable of a long name is another altogether, so it may be another thing.
    pub(super) fn is_strange(&self, frame: &Frame, step: &Step) -> bool {
        let len = usize::from(step.end - step.start);
        if step.role != Role::Need || step.exact || len < STRANGE_LEN_MIN {
            return false;
        }
        let places = self.starts[usize::from(step.start)]..self.starts[usize::from(step.start) + 1];
        let found = &self.found[usize::from(places.start)..usize::from(places.end)];
        let same = found.iter().find(|found| {
            let word = self.words.word(found.word);
            let needed = self.words.concepts(word).iter().any(|concept| frame.needs().contains(concept));
            found.end == step.end && found.cost == step.cost && needed && word.len() == len
        });
        let Some(found) = same else { return false };
        let word = self.words.word(found.word);
        let said = self.words.chars(word).iter().zip(self.words.syllables(word));
        said.enumerate().any(|(at, (ch, syllable))| {
            let at = usize::from(step.start) + at;
            let (heard, readings) = (self.utterance.chars[at], &self.utterance.readings[at]);
            self.sounds.cost_of(heard, readings, *ch, *syllable) >= STRANGE
        })
    }

    /// 饿 before 号, a verb or a particle does not name a thing; a word of two unknown characters might.
    fn could_name(&self, step: &Step) -> bool {
        let ch = self.utterance.chars[usize::from(step.start)];
        !"了的个台把给".contains(ch)
    }
}

fn is_unexplained(step: &Step) -> bool {
    matches!(step.role, Role::Foreign | Role::Unknown)
}

fn is_verb(step: &Step) -> bool {
    matches!(step.role, Role::Verb | Role::Both)
}

fn is_long(step: &Step) -> bool {
    step.end - step.start >= 2
}

/// 机组 behind 启动冷却水, which sounds a little like a verb.
fn goes_on_like_a_verb(path: &[Step]) -> bool {
    path.windows(2).enumerate().any(|(at, two)| {
        let said = path[..at].iter().any(|step| is_verb(step) && step.exact);
        said && two[0].role == Role::Need && is_verb(&two[1]) && !two[1].exact && is_long(&two[1])
    })
}

#[cfg(test)]
mod tests {
    use super::super::cascade::{Stages, Step as Walked, Walk};
    use super::super::definition::Commands;
    use super::super::definition::sample::command;
    use super::super::lexicon::{Class, Lexicon};
    use super::super::sound::Confusions;
    use super::super::understanding::Understanding;
    use crate::risk::Risk;

    fn plant() -> Understanding {
        let list = vec![
            command("pump_start", "启动水泵", "启动[{device}]水泵", Risk::Operate),
            command("pump_status", "查看水泵状态", "[查看][{device}]水泵状态", Risk::Read),
            command("belt_stop", "停止皮带", "停止[{device}]皮带", Risk::Operate),
            command("gate_open", "打开大门", "打开大门", Risk::Operate),
        ];
        let class = |name: &str, words: &str| Class {
            name: name.to_owned(),
            words: words.split(' ').map(str::to_owned).collect(),
            measures: Vec::new(),
        };
        let lexicon = Lexicon {
            actions: vec![class("START", "启动 打开 转"), class("STOP", "停止"), class("WATCH", "监控")],
            attributes: vec![class("STATUS", "状态")],
            nouns: vec![
                class("PUMP", "水泵 泵"),
                class("BELT", "皮带"),
                class("GATE", "大门"),
                class("CAMERA", "监控"),
            ],
            near: vec![("WATCH".to_owned(), "START".to_owned(), 30)],
            filler: ["把", "回", "给我", "的", "一下", "一点", "了", "吧"].map(str::to_owned).to_vec(),
            ..Lexicon::default()
        };
        let confusions = Confusions { other: 60, ..Confusions::default() };
        Understanding::compile(Commands { list, ..Commands::default() }, &lexicon, &confusions)
    }

    #[test]
    fn a_verb_or_a_place_between_the_verb_and_a_name_belongs_to_the_name() {
        for text in ["启动打开水泵", "把打开水泵停止", "停止回水泵", "把回水泵启动"] {
            check(text, None);
        }
        for text in ["启动水泵", "把水泵启动一下", "启动给我水泵", "水泵打开启动"] {
            check(text, Some("pump_start"));
        }
    }

    #[test]
    fn what_sounds_like_a_name_and_has_another_in_it_is_another() {
        check("启动水门", None);
        check("启动热泵", None);
    }

    fn check(text: &str, expected: Option<&str>) {
        let plant = plant();
        let Walked::Done(found) = Walk::new(&plant, text, Stages::PURE).next() else { panic!("no other stage is on") };
        assert_eq!(found.command().map(|one| one.command.as_str()), expected, "{text}");
    }

    #[test]
    fn a_name_that_goes_on_is_another_and_a_particle_or_a_stammer_is_none() {
        check("停止皮带秤", None);
        check("把皮带秤给我停止一下", None);
        check("打开大门监控", None);
        check("停止皮带", Some("belt_stop"));
        check("停止皮带把", Some("belt_stop"));
        check("停止皮带带", Some("belt_stop"));
        check("水泵秤状态", None);
    }

    #[test]
    fn what_stands_before_a_name_or_owns_it_makes_another_of_it() {
        check("启动喷淋二号水泵", None);
        check("打开仓库的大门", None);
        check("打开大门", Some("gate_open"));
    }

    #[test]
    fn a_verb_that_goes_on_is_another() {
        check("二号水泵转", Some("pump_start"));
        check("二号水泵转手", None);
    }

    #[test]
    fn somebody_or_another_language_before_a_command_is_no_order() {
        for text in ["小明启动水泵", "dont启动水泵", "never启动水泵", "歌里唱启动水泵"] {
            check(text, None);
        }
        check("天冷了，启动水泵", Some("pump_start"));
    }
}
