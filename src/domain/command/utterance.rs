//! From what a recogniser wrote to characters, syllables and numbers.
//!
//! Nothing is decided here and nothing is thrown away that a later stage could need: hazards, fillers and numbers
//! stay where they stand. What is removed cannot change a meaning: width, script, punctuation, a phrase said twice.

use unicode_normalization::UnicodeNormalization;

use super::number::{self, Amount};
use super::sound::{READINGS_MAX, Sounds, Syllable};

/// Longest utterance, in characters after normalization: coverage is a bit mask, and nobody commands a plant with
/// a longer sentence.
pub const UTTERANCE_LEN_MAX: usize = 64;
/// Longest raw text that is looked at, in bytes: normalization costs time before its result can be measured.
const RAW_LEN_MAX: usize = 1024;
/// Longest phrase whose repetition is taken back.
const REPEAT_LEN_MAX: usize = 12;

/// One utterance, ready for the stages.
#[derive(Debug, Clone, PartialEq)]
pub struct Utterance {
    /// The characters, at most [`UTTERANCE_LEN_MAX`].
    pub chars: Vec<char>,
    /// Their readings.
    pub readings: Vec<[Syllable; READINGS_MAX]>,
    /// Bit i: punctuation stood before character i.
    pub breaks: u64,
    /// It ended with a question mark.
    pub asked: bool,
    /// Its numbers.
    pub amounts: Vec<Amount>,
}

/// Why a text is no utterance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoUtterance {
    /// Nothing is left of it.
    Empty,
    /// More than [`UTTERANCE_LEN_MAX`] characters.
    TooLong,
}

impl Utterance {
    /// Reads `text`.
    ///
    /// # Errors
    /// When there is nothing to understand, or too much.
    pub fn read(text: &str, sounds: &Sounds) -> Result<Utterance, NoUtterance> {
        let (chars, breaks, asked) = normalize(text)?;
        Ok(Utterance::of(chars, breaks, asked, sounds))
    }

    /// The same without its readings, which are most of the work: for what is not compared by sound.
    ///
    /// # Errors
    /// As [`Utterance::read`].
    pub(super) fn unheard(text: &str) -> Result<Utterance, NoUtterance> {
        let (chars, breaks, asked) = normalize(text)?;
        let amounts = number::amounts(&chars);
        Ok(Utterance { chars, readings: Vec::new(), breaks, asked, amounts })
    }

    /// An utterance of characters that are normal already.
    #[must_use]
    pub fn of(chars: Vec<char>, breaks: u64, asked: bool, sounds: &Sounds) -> Utterance {
        let readings = chars.iter().map(|ch| sounds.readings(*ch)).collect();
        let amounts = number::amounts(&chars);
        Utterance { chars, readings, breaks, asked, amounts }
    }

    /// The part from `start` to `end`, as an utterance of its own.
    #[must_use]
    pub fn part(&self, start: usize, end: usize, sounds: &Sounds) -> Utterance {
        let breaks = (self.breaks >> start) & mask(end - start);
        let asked = self.asked && end == self.chars.len();
        Utterance::of(self.chars[start..end].to_vec(), breaks, asked, sounds)
    }

    /// The text as the stages see it.
    #[must_use]
    pub fn text(&self) -> String {
        self.chars.iter().collect()
    }
}

/// A mask of the lowest `n` bits.
#[must_use]
pub fn mask(n: usize) -> u64 {
    if n >= 64 { u64::MAX } else { (1 << n) - 1 }
}

/// Characters, breaks and whether a question mark stood at the end.
fn normalize(text: &str) -> Result<(Vec<char>, u64, bool), NoUtterance> {
    if text.len() > RAW_LEN_MAX {
        return Err(NoUtterance::TooLong);
    }
    let mut chars: Vec<char> = Vec::with_capacity(UTTERANCE_LEN_MAX);
    let mut marks: Vec<bool> = Vec::with_capacity(UTTERANCE_LEN_MAX);
    let (mut broken, mut asked) = (false, false);
    // Han characters and ASCII are as they are in every form of normalization, and next to nothing else is said.
    let is_plain = |ch: char| ch.is_ascii() || is_han(ch);
    let wide: Vec<char> = if text.chars().all(is_plain) { text.chars().collect() } else { text.nfkc().collect() };
    for (at, raw) in wide.iter().copied().enumerate() {
        let ch = normal(raw);
        let between_digits =
            |before: char| before.is_ascii_digit() && wide.get(at + 1).is_some_and(char::is_ascii_digit);
        let kept = is_han(ch)
            || ch.is_alphanumeric()
            || matches!(ch, '%' | '#' | '°' | '/')
            || (ch == '.' && chars.last().copied().is_some_and(between_digits));
        if !kept {
            // A space or a zero-width character separates nothing in Chinese; a comma does.
            broken |= ch.is_ascii_punctuation() || matches!(ch, '。' | '、' | '・' | '…' | '—' | '\n' | '「' | '」');
            asked |= ch == '?';
            continue;
        }
        asked = false;
        chars.push(ch);
        marks.push(broken);
        broken = false;
        if chars.len() > UTTERANCE_LEN_MAX * 2 {
            return Err(NoUtterance::TooLong);
        }
    }
    unrepeat(&mut chars, &mut marks);
    if chars.is_empty() {
        return Err(NoUtterance::Empty);
    }
    if chars.len() > UTTERANCE_LEN_MAX {
        return Err(NoUtterance::TooLong);
    }
    let breaks = marks.iter().enumerate().skip(1).fold(0, |breaks, (at, mark)| breaks | (u64::from(*mark) << at));
    Ok((chars, breaks, asked))
}

/// Takes back a phrase of two or more characters that was said twice in a row. Digits stay: 幺洞幺洞 is a number.
fn unrepeat(chars: &mut Vec<char>, marks: &mut Vec<bool>) {
    let mut at = 0;
    while at < chars.len() {
        let longest = REPEAT_LEN_MAX.min((chars.len() - at) / 2);
        let twice = (2..=longest).rev().find(|len| {
            let phrase = &chars[at..at + len];
            phrase[0] == chars[at + len]
                && phrase == &chars[at + len..at + 2 * len]
                && !phrase.iter().all(|ch| ch.is_ascii_digit() || DIGITS.contains(*ch))
        });
        match twice {
            Some(len) => {
                chars.drain(at + len..at + 2 * len);
                marks.drain(at + len..at + 2 * len);
            }
            None => at += 1,
        }
    }
}

const DIGITS: &str = "零〇一二两三四五六七八九十百千幺洞拐勾";

/// Traditional characters whose simplified form occurs in the words of a plant, each followed by that form; sorted.
/// From the character table of OpenCC (Apache-2.0).
const TRADITIONAL: &str = "丟丢並并乾干佔占併并來来係系俬私個个倫伦側侧傑杰備备傢家傳传傷伤僅仅價价儀仪償偿儲储兒儿內内兩两冊册凈净凍冻別别則则剛刚劃划劉刘劍剑劑剂動动務务勛勋勳勋區区卻却卽即厤历參参員员問问啓启啟启喫吃單单嗎吗噴喷噹当嚮向嚴严國国\
埰采執执報报場场塊块塗涂塵尘墻墙壓压壞坏壽寿夠够夥伙夾夹寀采實实審审寫写將将對对導导層层島岛嵗岁帥帅帶带幫帮幹干幾几庫库廚厨廠厂廣广廳厅張张強强彆别彈弹彔录後后復复徵征悶闷態态應应戶户掛挂採采揚扬換换損损摺折擋挡據据擺摆\
攏拢攝摄數数斷断於于昇升時时暫暂曆历曏向會会東东枴拐柵栅柺拐査查桿杆條条業业榘矩榦干榮荣構构槓杠樓楼標标樣样機机檔档檢检檯台櫃柜歐欧歲岁歷历歸归殘残毀毁氣气汙污沒没沖冲況况洩泄淨净淩凌減减測测湧涌準准溫温溼湿滅灭滯滞滾滚\
滿满漲涨潔洁潤润澀涩濃浓濕湿濾滤為为烏乌無无煩烦熱热燈灯燒烧燬毁爐炉爲为牀床牆墙狀状現现環环產产産产畫画異异畵画當当痠酸瘋疯發发盃杯監监盤盘眞真確确碼码種种穩稳窩窝竄窜箇个節节簾帘約约紅红納纳紙纸級级紮扎終终組组結结絕绝\
絞绞絡络給给統统絲丝絶绝綫线維维網网緊紧線线緣缘編编緩缓縣县縮缩總总繞绕繩绳繫系繼继續续纔才纜缆翫玩聞闻聯联聲声聽听脩修脹胀腳脚臟脏臥卧臺台與与舉举舘馆茲兹萬万葉叶葯药蓆席蔘参蔥葱薩萨藥药處处號号蝕蚀衕同衝冲裏里補补裝装\
裡里製制複复襬摆覈核見见視视覺觉觀观觸触訂订計计託托記记設设許许詢询試试話话該该誌志認认誠诚誤误說说説说誰谁調调請请講讲譟噪譭毁譯译護护讀读變变讓让負负貨货買买費费資资賞赏質质賺赚賽赛贏赢車车軟软軸轴載载輔辅輕轻輥辊輪轮\
輸输轉转轟轰辦办迴回這这連连週周進进遊游運运過过達达遞递還还邊边釋释釣钓鈕钮鈡钟鈴铃錄录錯错録录錶表鍋锅鍵键鍾钟鎖锁鏇旋鏈链鏡镜鐘钟鐵铁長长門门閉闭開开間间閘闸閤合閥阀闆板闇暗關关陞升險险隻只雙双雜杂雞鸡離离電电霧雾靈灵\
靜静韆千響响頂顶項项須须預预頭头頻频顏颜顔颜顯显風风颱台飯饭餘余館馆餵喂馬马駛驶騏骐驗验髒脏體体髮发鬆松鬚须鬥斗魚鱼鮮鲜鳥鸟鳴鸣鴨鸭鷄鸡鹼碱麪面麫面麯曲麴曲麵面麼么麽么黃黄點点齊齐齣出龔龚";

/// A written sentence as a classifier sees it: normal characters, without punctuation.
#[must_use]
pub fn plain(text: &str) -> String {
    text.nfkc().map(normal).filter(|ch| ch.is_alphanumeric() || matches!(ch, '.' | '%')).collect()
}

/// A character as an utterance holds it: small, and in simplified script.
#[must_use]
pub fn normal(ch: char) -> char {
    if ch.is_ascii() {
        return ch.to_ascii_lowercase();
    }
    if is_han(ch) { simplified(ch) } else { ch.to_lowercase().next().unwrap_or(ch) }
}

/// A character of the block that holds the common Han characters.
fn is_han(ch: char) -> bool {
    ('\u{4e00}'..='\u{9fff}').contains(&ch)
}

/// The simplified form of a traditional character of the table; any other character as it is.
#[must_use]
pub fn simplified(ch: char) -> char {
    let code = u32::from(ch) as usize;
    if !is_han(ch) || IS_TRADITIONAL[code / 64 - HAN_FIRST / 64] & (1 << (code % 64)) == 0 {
        return ch;
    }
    TRADITIONAL_SORTED.with(|table| match table.binary_search_by_key(&ch, |pair| pair.0) {
        Ok(at) => table[at].1,
        Err(_) => ch,
    })
}

const HAN_FIRST: usize = 0x4e00;

/// A bit for each Han character: does the table have a simplified form of it?
static IS_TRADITIONAL: [u64; 0x5200 / 64] = is_traditional();

const fn is_traditional() -> [u64; 0x5200 / 64] {
    let mut bits = [0; 0x5200 / 64];
    let bytes = TRADITIONAL.as_bytes();
    let mut at = 0;
    while at + 2 < bytes.len() {
        // Three bytes each in UTF-8 (RFC 3629); every other one is the simplified form.
        let code = ((bytes[at] as usize & 0xf) << 12)
            | ((bytes[at + 1] as usize & 0x3f) << 6)
            | (bytes[at + 2] as usize & 0x3f);
        bits[code / 64 - HAN_FIRST / 64] |= 1 << (code % 64);
        at += 6;
    }
    bits
}

thread_local! {
    static TRADITIONAL_SORTED: Box<[(char, char)]> = {
        let mut all = TRADITIONAL.chars();
        let mut pairs = Vec::new();
        while let (Some(from), Some(to)) = (all.next(), all.next()) {
            pairs.push((from, to));
        }
        pairs.into_boxed_slice()
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let (chars, _, _) = normalize(text).expect("an utterance");
        assert_eq!(chars.iter().collect::<String>(), expected, "{text}");
    }

    #[test]
    fn width_script_and_punctuation_go_and_the_point_in_a_number_stays() {
        check("启动，２号水泵！", "启动2号水泵");
        check("啟動二號水泵", "启动二号水泵");
        check("關閉閥門", "关闭阀门");
        check("AGV 去 充电", "agv去充电");
        check("速度设为1.5。", "速度设为1.5");
        check("1。5", "15");
        check("开度30％", "开度30%");
        check("启\u{200b}动水泵", "启动水泵");
    }

    #[test]
    fn every_row_of_the_table_is_found_by_its_bit() {
        let all: Vec<char> = TRADITIONAL.chars().collect();
        for pair in all.chunks(2) {
            assert_eq!(simplified(pair[0]), pair[1], "{}", pair[0]);
        }
        let bits: u32 = IS_TRADITIONAL.iter().map(|bits| bits.count_ones()).sum();
        assert_eq!(bits as usize, all.len() / 2);
    }

    #[test]
    fn a_phrase_said_twice_counts_once_and_digits_stay() {
        check("小控小控查询皮带跑偏", "小控查询皮带跑偏");
        check("启动水泵启动水泵", "启动水泵");
        check("调用程序幺洞幺洞", "调用程序幺洞幺洞");
        check("看看水泵", "看看水泵");
    }

    #[test]
    fn breaks_and_question_marks_are_remembered() {
        assert_eq!(normalize("车来了，把大门开开").expect("an utterance").1, 1 << 3);
        assert!(normalize("启动水泵？").expect("an utterance").2);
        assert_eq!(normalize("。。 "), Err(NoUtterance::Empty));
        let long: String = (0x4e00..0x4e00 + 65).filter_map(char::from_u32).collect();
        assert_eq!(normalize(&long), Err(NoUtterance::TooLong));
        assert_eq!(normalize(&"启动水泵".repeat(3000)), Err(NoUtterance::TooLong));
    }
}
