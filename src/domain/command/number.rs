//! Spoken numbers to typed values.
//!
//! Every place of an utterance is tried, and what stands there is kept as a span beside the words: whether 一 is a
//! number or part of 一下 is decided later, when it is known what the command needs. Nothing here guesses at
//! misheard numbers: 是一号 may be 十一号, and a wrong number is worse than a question.

/// A number in an utterance.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Amount {
    /// Its first character.
    pub start: u8,
    /// One past its last, unit included.
    pub end: u8,
    /// One past the last character of the number itself.
    pub bare_end: u8,
    /// Its value in the unit.
    pub value: f64,
    /// What the unit makes of it.
    pub measure: Measure,
    /// It was read digit by digit (幺洞拐): [`digits`] gives the text.
    pub spelled: bool,
}

/// What a number measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// No unit.
    Plain,
    /// 二号, 2#, 第二台: which one.
    Ordinal,
    /// 百分之三十, 六成五, 一半.
    Percent,
    /// Seconds, whatever the unit was.
    Seconds,
    /// 度.
    Degrees,
    /// 赫兹.
    Hertz,
    /// 转.
    Turns,
    /// 米每秒.
    Speed,
    /// 台, 个, 次: how many, never a value to set.
    Count,
    /// Another unit (公斤, 兆帕, 伏, ...).
    Other,
}

/// Numbers kept of one utterance.
const AMOUNTS_MAX: usize = 24;

/// All numbers of `chars`, longest reading first at each place where one begins.
#[must_use]
pub fn amounts(chars: &[char]) -> Vec<Amount> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < chars.len() && found.len() < AMOUNTS_MAX {
        match may_begin(chars[at]).then(|| amount_at(chars, at)).flatten() {
            Some(amount) => {
                at = usize::from(amount.end).max(at + 1);
                found.push(amount);
            }
            None => at += 1,
        }
    }
    found
}

/// The digits of a span, as text: 洞幺五 -> 015, 12 -> 12, 十二 -> 12.
#[must_use]
pub fn digits(chars: &[char], amount: &Amount) -> String {
    let span = &chars[usize::from(amount.start)..usize::from(amount.bare_end)];
    let spelled: Option<String> =
        span.iter().filter(|ch| !matches!(ch, '第' | '#')).map(|ch| digit(*ch).map(|n| char::from(b'0' + n))).collect();
    match spelled {
        Some(text) if !text.is_empty() => text,
        _ => format!("{}", amount.value),
    }
}

/// The number that begins at `at` without looking at its unit, and one past its last character: the 5 of 5分钟.
#[must_use]
pub fn bare_at(chars: &[char], at: usize) -> Option<(f64, usize)> {
    let (value, len, _) = bare(chars.get(at..)?)?;
    Some((value, at + len))
}

fn digit(ch: char) -> Option<u8> {
    Some(match ch {
        '0'..='9' => ch as u8 - b'0',
        '零' | '〇' | '洞' => 0,
        '一' | '幺' => 1,
        '二' | '两' | '俩' => 2,
        '三' | '仨' => 3,
        '四' => 4,
        '五' => 5,
        '六' => 6,
        '七' | '拐' => 7,
        '八' => 8,
        '九' | '勾' => 9,
        _ => return None,
    })
}

fn scale(ch: char) -> Option<f64> {
    Some(match ch {
        '十' => 10.0,
        '百' => 100.0,
        '千' => 1000.0,
        _ => return None,
    })
}

fn starts(rest: &[char], word: &str) -> Option<usize> {
    let mut n = 0;
    for ch in word.chars() {
        if rest.get(n) != Some(&ch) {
            return None;
        }
        n += 1;
    }
    Some(n)
}

/// The length of the first of `words` that `rest` begins with.
pub(super) fn any(rest: &[char], words: &[&str]) -> Option<usize> {
    words.iter().find_map(|word| starts(rest, word))
}

/// A number without unit: its value, its length, and whether it was spelled.
fn bare(chars: &[char]) -> Option<(f64, usize, bool)> {
    if chars.first().is_some_and(char::is_ascii_digit) {
        let mut n = 0;
        let mut text = String::new();
        while let Some(ch) = chars.get(n) {
            let point = *ch == '.' && chars.get(n + 1).is_some_and(char::is_ascii_digit) && !text.contains('.');
            if !(ch.is_ascii_digit() || point) || n > 15 {
                break;
            }
            text.push(*ch);
            n += 1;
        }
        let mut value: f64 = text.parse().ok()?;
        if chars.get(n) == Some(&'万') {
            value *= 10_000.0;
            n += 1;
        }
        return Some((value, n, true));
    }
    let spelled = chars.iter().take_while(|ch| digit(**ch).is_some()).count().min(12);
    let scaled = chars.get(spelled).is_some_and(|ch| scale(*ch).is_some() || matches!(ch, '万' | '亿'));
    let (mut value, mut n, by_digit) = if spelled >= 2 && !scaled {
        (
            chars[..spelled].iter().filter_map(|ch| digit(*ch)).fold(0.0, |sum, d| sum * 10.0 + f64::from(d)),
            spelled,
            true,
        )
    } else {
        let (value, n) = cardinal(chars)?;
        (value, n, spelled == 1 && n == 1)
    };
    // 一点五; the point counts only between digits, so that 三点 stays a time of day.
    if chars.get(n) == Some(&'点') && chars.get(n + 1).is_some_and(|ch| digit(*ch).is_some()) {
        let mut unit = 0.1;
        n += 1;
        while let Some(d) = chars.get(n).and_then(|ch| digit(*ch)) {
            value += f64::from(d) * unit;
            unit /= 10.0;
            n += 1;
        }
        // Tenths are not exact in binary: 0.1 steps would print as 1.5000000000000002.
        value = (value * 1e6).round() / 1e6;
        return Some((value, n, false));
    }
    Some((value, n, by_digit))
}

/// 十, 一百二, 两千五百, 一万零三十, 三亿.
fn cardinal(chars: &[char]) -> Option<(f64, usize)> {
    let (mut total, mut section, mut pending) = (0.0, 0.0, None::<f64>);
    let (mut n, mut last_scale) = (0, 0.0);
    while let Some(ch) = chars.get(n) {
        if let Some(d) = digit(*ch) {
            if pending.is_some() {
                break;
            }
            // A zero only bridges a gap (一千零五十); alone it is a number.
            if d == 0 && n > 0 {
                if chars.get(n + 1).and_then(|next| digit(*next)).is_none() {
                    break;
                }
                last_scale = 0.0;
            } else {
                pending = Some(f64::from(d));
            }
        } else if let Some(by) = scale(*ch) {
            if pending.is_none() && !(by == 10.0 && (n == 0 || last_scale != 10.0)) {
                break;
            }
            section += pending.take().unwrap_or(1.0) * by;
            last_scale = by;
        } else if matches!(ch, '万' | '亿') {
            if n == 0 {
                break;
            }
            let by = if *ch == '万' { 1e4 } else { 1e8 };
            total = (total + section + pending.take().unwrap_or(0.0)) * by;
            section = 0.0;
            last_scale = by;
        } else {
            break;
        }
        n += 1;
    }
    if n == 0 {
        return None;
    }
    // 一百二 is 120, 两千五 is 2500, 一万二 is 12000: a last digit right after a scale stands one below it.
    let tail = match pending {
        Some(d) if last_scale >= 100.0 => d * last_scale / 10.0,
        Some(d) => d,
        None => 0.0,
    };
    Some((total + section + tail, n))
}

/// Can a number or a duration begin with this character? Most cannot.
fn may_begin(ch: char) -> bool {
    digit(ch).is_some() || matches!(ch, '十' | '百' | '千' | '半' | '第' | '#')
}

/// The number that begins at `at`, with its unit.
fn amount_at(chars: &[char], at: usize) -> Option<Amount> {
    let rest = &chars[at..];
    let make = |len: usize, bare_len: usize, value: f64, measure: Measure, spelled: bool| {
        Some(Amount {
            start: u8::try_from(at).ok()?,
            end: u8::try_from(at + len).ok()?,
            bare_end: u8::try_from(at + bare_len).ok()?,
            value,
            measure,
            spelled,
        })
    };
    if let Some(n) = starts(rest, "百分之") {
        if let Some((value, len, _)) = bare(&rest[n..]) {
            return make(n + len, n + len, value, Measure::Percent, false);
        }
        return None;
    }
    if let Some((seconds, len)) = duration(rest) {
        return make(len, len, seconds, Measure::Seconds, false);
    }
    if starts(rest, "一半").is_some() {
        return make(2, 2, 50.0, Measure::Percent, false);
    }
    if rest[0] == '#' {
        let (value, len, spelled) = bare(&rest[1..])?;
        return make(1 + len, 1 + len, value, Measure::Ordinal, spelled);
    }
    if rest[0] == '第' {
        let (value, len, spelled) = bare(&rest[1..])?;
        let unit = any(&rest[1 + len..], &["号", "台", "个", "把", "条", "路", "组", "辆", "道"]).unwrap_or(0);
        return make(1 + len + unit, 1 + len, value, Measure::Ordinal, spelled);
    }
    let (value, len, spelled) = bare(rest)?;
    let tail = &rest[len..];
    if tail.first() == Some(&'成') && value <= 10.0 && !tail.get(1).is_some_and(|next| matches!(next, '为' | '品')) {
        let more = match tail.get(1) {
            Some('半') => Some((5.0, 2)),
            Some(next) => digit(*next).map(|d| (f64::from(d), 2)),
            None => None,
        };
        let (extra, unit) = more.unwrap_or((0.0, 1));
        return make(len + unit, len, value * 10.0 + extra, Measure::Percent, false);
    }
    for (words, measure) in UNITS {
        if let Some(unit) = any(tail, words) {
            let half = tail.get(unit) == Some(&'半') && *measure == Measure::Degrees;
            let value = if half { value + 0.5 } else { value };
            return make(len + unit + usize::from(half), len, value, *measure, spelled);
        }
    }
    make(len, len, value, Measure::Plain, spelled)
}

/// Longer words before their beginnings.
const UNITS: &[(&[&str], Measure)] = &[
    (&["号", "#"], Measure::Ordinal),
    (&["%", "个百分点"], Measure::Percent),
    (&["摄氏度", "度", "°c", "°"], Measure::Degrees),
    (&["赫兹", "赫", "hz"], Measure::Hertz),
    (&["转每分钟", "转每分", "转", "rpm"], Measure::Turns),
    (&["米每秒", "米一秒", "m/s", "米"], Measure::Speed),
    (&["台", "个", "次", "遍", "件", "条", "辆", "位", "点", "档", "组", "趟", "层", "块", "根", "种"], Measure::Count),
    (
        &["公斤", "兆帕", "千帕", "巴", "千伏", "伏", "安", "千瓦", "千乏", "立方", "吨", "升", "毫米", "厘米"],
        Measure::Other,
    ),
];

/// 一小时三十分钟, 两个半小时, 一刻钟, 半个钟头, 90秒: seconds and length.
fn duration(chars: &[char]) -> Option<(f64, usize)> {
    let (mut seconds, mut n) = (0.0, 0);
    loop {
        let rest = &chars[n..];
        let one = half_hour(rest).or_else(|| measured(rest, n > 0));
        match one {
            Some((more, len)) => {
                seconds += more;
                n += len;
            }
            None => break,
        }
    }
    (n > 0).then_some((seconds, n))
}

fn half_hour(chars: &[char]) -> Option<(f64, usize)> {
    if chars.first() != Some(&'半') {
        return None;
    }
    let skip = 1 + usize::from(chars.get(1) == Some(&'个'));
    let (seconds, len) = unit_of_time(&chars[skip..])?;
    Some((seconds / 2.0, skip + len))
}

/// `inside` a longer duration a bare 三十分 is minutes.
fn measured(chars: &[char], inside: bool) -> Option<(f64, usize)> {
    let (mut value, mut n, _) = bare(chars)?;
    if chars.get(n) == Some(&'个') {
        n += 1;
    }
    let mut half = false;
    if chars.get(n) == Some(&'半') {
        half = true;
        n += 1;
    }
    if let Some(len) = any(&chars[n..], &["刻钟", "刻"]) {
        return Some((value * 900.0, n + len));
    }
    let (seconds, len) = match unit_of_time(&chars[n..]) {
        Some(found) => found,
        None if inside && chars.get(n) == Some(&'分') => (60.0, 1),
        None => return None,
    };
    if half {
        value += 0.5;
    }
    let mut end = n + len;
    // 一小时半
    if !half && chars.get(end) == Some(&'半') && seconds >= 60.0 {
        value += 0.5;
        end += 1;
    }
    Some((value * seconds, end))
}

fn unit_of_time(chars: &[char]) -> Option<(f64, usize)> {
    const UNITS: &[(&[&str], f64)] =
        &[(&["小时", "钟头", "h"], 3600.0), (&["分钟", "min"], 60.0), (&["秒钟", "秒"], 1.0), (&["天"], 86_400.0)];
    let found = UNITS.iter().find_map(|(words, seconds)| any(chars, words).map(|len| (*seconds, len)))?;
    // hz is a frequency.
    if found.1 == 1 && chars[0] == 'h' && chars.get(1) == Some(&'z') { None } else { Some(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, f64, Measure)]) {
        let chars: Vec<char> = text.chars().collect();
        let found: Vec<(String, f64, Measure)> = amounts(&chars)
            .iter()
            .map(|a| (chars[usize::from(a.start)..usize::from(a.end)].iter().collect(), a.value, a.measure))
            .collect();
        let expected: Vec<(String, f64, Measure)> =
            expected.iter().map(|(text, value, measure)| ((*text).to_owned(), *value, *measure)).collect();
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn numbers_and_their_units() {
        use Measure::{Count, Degrees, Hertz, Ordinal, Percent, Plain, Seconds, Speed, Turns};
        check("一号水泵", &[("一号", 1.0, Ordinal)]);
        check("12号阀门", &[("12号", 12.0, Ordinal)]);
        check("2#泵", &[("2#", 2.0, Ordinal)]);
        check("#3", &[("#3", 3.0, Ordinal)]);
        check("第二台", &[("第二台", 2.0, Ordinal)]);
        check("二十六度半", &[("二十六度半", 26.5, Degrees)]);
        check("1.5米每秒", &[("1.5米每秒", 1.5, Speed)]);
        check("零点八米每秒", &[("零点八米每秒", 0.8, Speed)]);
        check("六成五", &[("六成五", 65.0, Percent)]);
        check("三成半", &[("三成半", 35.0, Percent)]);
        check("百分之一百二", &[("百分之一百二", 120.0, Percent)]);
        check("30%", &[("30%", 30.0, Percent)]);
        check("开一半", &[("一半", 50.0, Percent)]);
        check("一千零五十转", &[("一千零五十转", 1050.0, Turns)]);
        check("两千五百转", &[("两千五百转", 2500.0, Turns)]);
        check("一万二", &[("一万二", 12_000.0, Plain)]);
        check("两千五", &[("两千五", 2500.0, Plain)]);
        check("一百零五", &[("一百零五", 105.0, Plain)]);
        check("十五", &[("十五", 15.0, Plain)]);
        check("一百一十", &[("一百一十", 110.0, Plain)]);
        check("25hz", &[("25hz", 25.0, Hertz)]);
        check("四十分钟", &[("四十分钟", 2400.0, Seconds)]);
        check("一小时三十分钟", &[("一小时三十分钟", 5400.0, Seconds)]);
        check("一小时三十分", &[("一小时三十分", 5400.0, Seconds)]);
        check("两个半小时", &[("两个半小时", 9000.0, Seconds)]);
        check("半个钟头", &[("半个钟头", 1800.0, Seconds)]);
        check("一刻钟", &[("一刻钟", 900.0, Seconds)]);
        check("一小时半", &[("一小时半", 5400.0, Seconds)]);
        check("90秒", &[("90秒", 90.0, Seconds)]);
        check("三台", &[("三台", 3.0, Count)]);
        check("没有数", &[]);
    }

    #[test]
    fn spelled_digits_keep_their_zero() {
        let check = |text: &str, expected: &str| {
            let chars: Vec<char> = text.chars().collect();
            let found = amounts(&chars);
            assert_eq!(digits(&chars, &found[0]), expected, "{text}");
        };
        check("洞幺五", "015");
        check("幺洞拐", "107");
        check("107号", "107");
        check("一百零七", "107");
        check("十二号", "12");
    }
}
