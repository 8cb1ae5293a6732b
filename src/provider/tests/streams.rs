//! Streams recorded from real providers (`tests/data/provider-streams`): what each is worth, whole and however it is cut.

use std::path::Path;

use interlock_domain::block::Provider;

use super::super::Dialect;
use super::super::end::End;
use super::{end_of, plain, shown};

/// What each stream gives: the beginning of the text, its length, and the rest of the line of [`shown`] without texts.
const WORTH: &[(&str, &str)] = &[
    (
        "alibaba_alibaba-tool-call",
        "complete tool_use | call_eee11723464a4b9eb8cee71d=weather{\"location\":\"San Francisco\"}",
    ),
    ("anthropic_anthropic-clear-thinking.1", "complete end | (…) | 925 ÷ 5 = 185"),
    (
        "anthropic_anthropic-json-tool.1",
        "complete tool_use | toolu_01KFbKqPYSuAKujiL6mTfzYA=json{\"elements\":[{\"condition\":\"sunny\",\"location\":\"San Francisco\",\"temperature\":58}]}",
    ),
    ("anthropic_anthropic-refusal", "complete end"),
    (
        "anthropic_anthropic-tool-no-args",
        "complete tool_use | I'll update the issue list for you. | toolu_01QE1WLsSVp5hy5Q3GmGTmjP=updateIssueList{}",
    ),
    ("anthropic_duplicate-message-start", "complete end | Hello, World!"),
    ("deepseek_chat_deepseek-reasoning", "complete end | (…) | The word \"strawberry\" contains three \"r\"s."),
    (
        "deepseek_chat_deepseek-tool-call",
        "complete tool_use | (…) | call_00_ioIn7yN9p1ZOMNpDLwd4MgAF=weather{\"location\":\"San Francisco\"}",
    ),
    (
        "google_google-stream-tool-call-arguments",
        "complete tool_use | call00001=getWeather{\"location\":\"Boston\"} | call00002=getWeather{\"location\":\"San Francisco\"}",
    ),
    ("google_google-tool-call", "complete tool_use | call00001=weather{\"location\":\"San Francisco\"}"),
    ("google_google-tool-call-gemini3", "complete tool_use | call00001=weather{\"location\":\"San Francisco\"}"),
    ("groq_groq-tool-call", "complete tool_use | tk85n1k4m=weather{}"),
    (
        "mistral_mistral-incremental-tool-call",
        "complete tool_use | chatcmpl-tool-9f149c74c42f265b=webSearchTool{\"query\":\"current Berlin weather\"}",
    ),
    ("moonshotai_moonshotai-stream", "complete end | (…) | Hello!"),
    (
        "openai-compatible_chat_xai-tool-call",
        "complete tool_use | (…) | call_79382389=weather{\"location\":\"San Francisco\"}",
    ),
    (
        "openai_responses_openai-custom-tool.1",
        "complete tool_use | call_custom_sql_001=write_sql{\"input\":\"SELECT * FROM users WHERE age > 25\"}",
    ),
    ("openai_responses_openai-error.1", "provider_error ! provider_error"),
    (
        "openai_responses_openai-reasoning-encrypted-content.1",
        "complete tool_use | (…) | call_AB6AaRZ1FYZB2RwS6A5vbdqn=calculator{\"a\":12,\"b\":7,\"op\":\"add\"} | call_Q6pW65MUgW9vF59BmItYGos3=calculator{\"a\":19,\"b\":3,\"op\":\"multiply\"} | call_Zl5vIMnD7dVAjgU6FkhmiCZh=calculator{\"a\":57,\"b\":10,\"op\":\"multiply\"} | The final result is **570**.",
    ),
];

fn provider(name: &str) -> Provider {
    match name {
        _ if name.starts_with("anthropic_") => Provider::Anthropic,
        _ if name.starts_with("google_") => Provider::Gemini,
        _ if name.starts_with("openai_responses_") => Provider::Responses,
        _ => Provider::Chat,
    }
}

/// Each stream as its provider sent it.
fn recorded() -> Vec<(String, Provider, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/provider-streams");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let mut streams: Vec<_> = files
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_suffix(".chunks.txt")?.to_owned();
            let text = std::fs::read_to_string(&path).unwrap();
            let lines: Vec<&str> = text.lines().filter(|line| !line.is_empty()).collect();
            let provider = provider(&name);
            let mut bytes = super::events(&lines);
            if provider == Provider::Chat {
                bytes.extend(b"data: [DONE]\n\n");
            }
            Some((name, provider, bytes))
        })
        .collect();
    streams.sort();
    streams
}

/// Thoughts are long and their signatures longer: that they are there is enough here.
fn without_thoughts(line: &str) -> String {
    let parts = line.split(" | ").map(|part| if part.starts_with('(') { "(…)" } else { part });
    parts.collect::<Vec<_>>().join(" | ")
}

#[test]
fn each_recorded_stream_is_worth_what_its_provider_meant() {
    let got: Vec<(String, String)> = recorded()
        .iter()
        .map(|(name, provider, bytes)| {
            let line = shown(&plain(*provider, bytes));
            // A thought may hold the mark that separates parts.
            let line = match (line.find(" | ("), line.rfind(") | ")) {
                (Some(from), Some(to)) if from < to => format!("{} | (…{}", &line[..from], &line[to..]),
                _ => line,
            };
            (name.clone(), without_thoughts(&line).replace('\n', " "))
        })
        .collect();
    let want: Vec<(String, String)> =
        WORTH.iter().map(|(name, worth)| ((*name).to_owned(), (*worth).to_owned())).collect();
    assert_eq!(got, want);
}

/// As lines of JSON, as they are recorded, without any framing.
#[test]
fn bare_lines_of_json_are_worth_the_same() {
    for (name, provider, bytes) in recorded() {
        let text = String::from_utf8(bytes.clone()).unwrap();
        let bare: String = text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .filter(|l| *l != "[DONE]")
            .map(|l| format!("{l}\n"))
            .collect();
        assert_eq!(plain(provider, bare.as_bytes()), plain(provider, &bytes), "{name}");
        let array = format!("[{}]", bare.trim_end().replace('\n', ",\r\n"));
        assert_eq!(plain(provider, array.as_bytes()), plain(provider, &bytes), "{name}");
    }
}

fn cut(provider: Provider, bytes: &[u8], cuts: &[usize]) -> End {
    let ends = cuts.iter().copied().chain([bytes.len()]);
    let begins = [0].into_iter().chain(cuts.iter().copied());
    end_of(&Dialect::plain(provider), begins.zip(ends).map(|(from, to)| &bytes[from..to]))
}

/// The most bytes of a stream that is cut at every place: the work grows with its square.
const CUT_EVERYWHERE: usize = 2048;
/// Random cuttings of each stream.
const CUTTINGS: usize = 8;

#[test]
fn any_cut_of_the_bytes_gives_the_same_blocks() {
    for (name, provider, bytes) in recorded() {
        let whole = plain(provider, &bytes);
        let everywhere: Vec<usize> = (1..bytes.len()).collect();
        assert_eq!(cut(provider, &bytes, &everywhere), whole, "{name}, byte by byte");
        if bytes.len() <= CUT_EVERYWHERE {
            for at in everywhere {
                assert_eq!(cut(provider, &bytes, &[at]), whole, "{name}, cut at {at}");
            }
        }
        for seed in 0..CUTTINGS as u64 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut cuts: Vec<usize> = (0..random.usize(1..40)).map(|_| random.usize(0..=bytes.len())).collect();
            cuts.sort_unstable();
            assert_eq!(cut(provider, &bytes, &cuts), whole, "{name}, seed {seed}");
        }
    }
}

/// A stream that ends early, wherever, is never complete with fewer calls, and never panics.
#[test]
fn a_stream_that_ends_early_dispatches_nothing() {
    use super::super::end::Terminal;
    for (name, provider, bytes) in recorded() {
        let whole = plain(provider, &bytes);
        let step = (bytes.len() / 150).max(1);
        for at in (0..bytes.len()).step_by(step) {
            let end = plain(provider, &bytes[..at]);
            if end.terminal == Terminal::Complete {
                let calls = |end: &End| end.calls().cloned().collect::<Vec<_>>();
                assert!(
                    calls(&end) == calls(&whole) || name.contains("encrypted"),
                    "{name}, {at} bytes: {}",
                    shown(&end)
                );
            } else {
                assert_eq!(end.calls().count(), 0, "{name}, {at} bytes");
            }
        }
    }
}
