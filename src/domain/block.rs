//! The shared content blocks that every provider's messages are made into, and the rule that names a tool call.
//!
//! Plain data: nothing in here decides what may happen, and nothing knows a wire format. What a provider attached to a
//! part (a signature, an encrypted thought, an item of its own) stays on that part, byte for byte, and goes back to
//! that provider only: trimmed, moved or sent to somebody else, it is refused or means something else.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde_json::{Map, Value};

/// The longest id that a provider may give a call, in bytes. Gateways hide whole signatures in it; beyond this it is
/// no id.
pub const ID_LEN_MAX: usize = 64 * 1024;

/// Whose wire format it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Provider {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions and what is compatible with it.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Gemini `generateContent`.
    Gemini,
}

impl Provider {
    /// All of them.
    pub const ALL: [Provider; 4] = [Provider::Anthropic, Provider::Chat, Provider::Responses, Provider::Gemini];

    /// The word on the command line and in the configuration.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Provider::Anthropic => "anthropic",
            Provider::Chat => "openai",
            Provider::Responses => "openai-responses",
            Provider::Gemini => "gemini",
        }
    }
}

impl FromStr for Provider {
    type Err = NoSuchProvider;

    fn from_str(text: &str) -> Result<Provider, NoSuchProvider> {
        let known = |provider: &Provider| provider.word() == text;
        Provider::ALL.into_iter().find(known).ok_or_else(|| NoSuchProvider(text.chars().take(64).collect()))
    }
}

/// A text that names no provider.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no provider: anthropic, openai, openai-responses, gemini")]
pub struct NoSuchProvider(String);

/// Who speaks. What the system says is no message of the history: each provider has another place for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The asker, and the results of calls.
    User,
    /// The model.
    Assistant,
}

/// One message.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order.
    pub blocks: Vec<Block>,
}

impl Message {
    /// The asker says something.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Message {
        Message { role: Role::User, blocks: vec![Block::text(text)] }
    }

    /// The calls in it, in order.
    pub fn calls(&self) -> impl Iterator<Item = &ToolUse> {
        calls(&self.blocks)
    }
}

/// The calls among blocks, in order.
pub fn calls(blocks: &[Block]) -> impl Iterator<Item = &ToolUse> {
    blocks.iter().filter_map(|block| match block {
        Block::ToolUse(call) => Some(call),
        Block::Text { .. }
        | Block::Thinking { .. }
        | Block::RedactedThinking { .. }
        | Block::ToolResult(_)
        | Block::Image(_)
        | Block::Opaque { .. } => None,
    })
}

/// One part of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Block {
    /// Text.
    Text {
        /// As it was said.
        text: String,
        /// What the provider attached.
        kept: Kept,
    },
    /// A thought. Without its signature, Anthropic does not take it back.
    Thinking {
        /// As far as it is shown.
        text: String,
        /// What proves that it was not changed, or the encrypted thought itself.
        signature: Option<String>,
        /// Who thought it.
        from: Provider,
        /// What else the provider attached.
        kept: Kept,
    },
    /// A thought of Anthropic's that is not shown.
    RedactedThinking {
        /// Encrypted.
        data: String,
    },
    /// A call.
    ToolUse(ToolUse),
    /// What came of a call.
    ToolResult(ToolResult),
    /// A picture.
    Image(Image),
    /// What only its provider understands (its own tools and their results): kept whole, replayed, never run.
    Opaque {
        /// Whose.
        from: Provider,
        /// As it came.
        value: Arc<Value>,
    },
}

impl Block {
    /// Text without anything attached.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Block {
        Block::Text { text: text.into(), kept: Kept::none() }
    }
}

/// What a provider attached to a part, for that provider alone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Kept(Option<Arc<(Provider, Map<String, Value>)>>);

impl Kept {
    /// Nothing.
    #[must_use]
    pub fn none() -> Kept {
        Kept(None)
    }

    /// Members that `provider` gets back.
    #[must_use]
    pub fn of(provider: Provider, members: Map<String, Value>) -> Kept {
        Kept((!members.is_empty()).then(|| Arc::new((provider, members))))
    }

    /// What `provider` gets back; nothing when it came from another.
    #[must_use]
    pub fn back_to(&self, provider: Provider) -> Option<&Map<String, Value>> {
        self.0.as_ref().filter(|kept| kept.0 == provider).map(|kept| &kept.1)
    }

    /// Whose it is, and what.
    #[must_use]
    pub fn whole(&self) -> Option<(Provider, &Map<String, Value>)> {
        self.0.as_ref().map(|kept| (kept.0, &kept.1))
    }
}

/// What a call is for its provider: each kind needs its own kind of answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// A function with named arguments.
    Function,
    /// A custom tool of the Responses format: its input is one text.
    Custom,
    /// A tool that the provider defines and the client runs (`local_shell` and its like).
    Native,
}

/// A call that the model proposes.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolUse {
    /// Ours, unique in the run.
    pub id: UseId,
    /// What the provider sent; empty when it sent none.
    pub provider_id: String,
    /// The tool as the model wrote it.
    pub name: String,
    /// The input: always an object.
    pub input: Arc<Value>,
    /// What kind of answer it needs.
    pub kind: CallKind,
    /// What the provider attached.
    pub kept: Kept,
}

impl ToolUse {
    /// The answer to it.
    #[must_use]
    pub fn answer(&self, text: impl Into<String>, is_error: bool) -> ToolResult {
        ToolResult {
            call: self.id.clone(),
            provider_id: self.provider_id.clone(),
            name: self.name.clone(),
            kind: self.kind,
            text: text.into(),
            images: Vec::new(),
            is_error,
            kept: self.kept.clone(),
        }
    }
}

/// What came of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The call.
    pub call: UseId,
    /// What the provider had sent as its id.
    pub provider_id: String,
    /// The tool.
    pub name: String,
    /// The kind of the call.
    pub kind: CallKind,
    /// What the model reads.
    pub text: String,
    /// Pictures beside it.
    pub images: Vec<Image>,
    /// It did not go well, or nobody knows.
    pub is_error: bool,
    /// What the provider had attached to the call.
    pub kept: Kept,
}

/// A picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// `image/png` and so on; empty when it is not said.
    pub media_type: String,
    /// The picture itself.
    pub source: ImageSource,
}

/// Where a picture is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageSource {
    /// Here, in base 64.
    Base64(String),
    /// Somewhere else.
    Url(String),
}

/// The name of a call within its run. Made by [`Ids`]; two calls never share one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UseId(String);

impl UseId {
    /// One that [`Ids`] gave earlier, read back from where the history was kept.
    #[must_use]
    pub fn read_back(text: impl Into<String>) -> UseId {
        UseId(text.into())
    }

    /// As it is written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The ids that a run has used, and the rule for the next: the provider's own if it is there and unused, else one that
/// counts the calls of the run. It depends on the calls before and on nothing else, so that the same history always
/// has the same ids and a provider's prompt cache stays warm.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ids {
    used: BTreeSet<String>,
    calls: u32,
}

impl Ids {
    /// A run without a call.
    #[must_use]
    pub fn new() -> Ids {
        Ids::default()
    }

    /// What a history has used.
    #[must_use]
    pub fn of(history: &[Message]) -> Ids {
        let mut ids = Ids::new();
        history.iter().flat_map(Message::calls).for_each(|call| ids.note(&call.id));
        ids
    }

    /// A call that has its id.
    pub fn note(&mut self, id: &UseId) {
        self.used.insert(id.0.clone());
        self.calls = self.calls.saturating_add(1);
    }

    /// The id of the next call, whose provider calls it `provider_id`.
    pub fn take(&mut self, provider_id: &str) -> UseId {
        self.calls = self.calls.saturating_add(1);
        if !provider_id.is_empty() && self.used.insert(provider_id.to_owned()) {
            return UseId(provider_id.to_owned());
        }
        let mut number = self.calls;
        loop {
            // Nine letters and digits: the only form that Mistral takes, and within what the others take.
            let id = format!("call{number:05}");
            if self.used.insert(id.clone()) {
                return UseId(id);
            }
            number = number.saturating_add(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What providers sent, in order, and what the calls are called.
    fn check(sent: &[&str], want: &[&str]) {
        let mut ids = Ids::new();
        let given: Vec<String> = sent.iter().map(|id| ids.take(id).to_string()).collect();
        assert_eq!(given, want, "{sent:?}");
        let mut seen = given.clone();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), given.len(), "{sent:?}: two calls share an id");
    }

    #[test]
    fn an_id_is_the_providers_if_it_is_unused_else_one_that_counts() {
        check(&["a", "b"], &["a", "b"]);
        check(&["", ""], &["call00001", "call00002"]);
        check(&["a", "a", "a"], &["a", "call00002", "call00003"]);
        check(&["call00002", ""], &["call00002", "call00003"]);
        check(&["", "call00001", "call00002"], &["call00001", "call00002", "call00003"]);
        check(&["bash", "", "bash"], &["bash", "call00002", "call00003"]);
    }

    #[test]
    fn a_history_goes_on_where_it_stopped() {
        let mut whole = Ids::new();
        let first: Vec<UseId> = ["x", "", "x"].iter().map(|id| whole.take(id)).collect();
        let call = |id: &UseId| {
            Block::ToolUse(ToolUse {
                id: id.clone(),
                provider_id: String::new(),
                name: "t".to_owned(),
                input: Arc::new(Value::Object(Map::new())),
                kind: CallKind::Function,
                kept: Kept::none(),
            })
        };
        let history = [Message { role: Role::Assistant, blocks: first.iter().map(call).collect() }];
        assert_eq!(Ids::of(&history), whole);
    }

    #[test]
    fn what_is_kept_goes_back_to_its_provider_only() {
        let members = Map::from_iter([("thoughtSignature".to_owned(), Value::from("s"))]);
        let kept = Kept::of(Provider::Gemini, members.clone());
        assert_eq!(kept.back_to(Provider::Gemini), Some(&members));
        assert_eq!(kept.back_to(Provider::Anthropic), None);
        assert_eq!(Kept::of(Provider::Gemini, Map::new()), Kept::none());
    }

    #[test]
    fn a_provider_is_read_by_its_word() {
        for provider in Provider::ALL {
            assert_eq!(provider.word().parse(), Ok(provider));
        }
        assert!("openai_chat".parse::<Provider>().is_err());
    }
}
