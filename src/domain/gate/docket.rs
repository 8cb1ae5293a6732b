//! A batch at the gate: what is permitted, what waits for a person's word.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::id::{CallId, Epoch, QuestionId, ToolName};
use crate::request::args::Digest;
use crate::request::why::{Step, Why};
use crate::request::{Asker, Refusal, Request};
use crate::risk::Risk;
use crate::surface::Call;
use crate::surface::nature::Nature;
use crate::surface::tool::Tool;
use crate::time::Tick;

use super::breaker::{Breaker, Denials, Denied};
use super::decide::{Case, Decision, Verdict, decide};
use super::policy::Policy;
use crate::request::shown::shown;

/// What a question is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuestionKind {
    /// The gate asks for a permission.
    Permit,
    /// A dangerous action waits for its confirmation.
    Confirm,
    /// What became of an effect whose outcome is unknown.
    Outcome,
}

impl QuestionKind {
    /// The word in `ask list`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            QuestionKind::Permit => "permit",
            QuestionKind::Confirm => "confirm",
            QuestionKind::Outcome => "outcome",
        }
    }
}

/// What an answer is bound to. An answer for another call, another input, other facts or another epoch is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuestionKey {
    /// The call.
    pub call: CallId,
    /// The hash of its input.
    pub args: Digest,
    /// The digest of the facts about its paths.
    pub facts: Digest,
    /// The epoch of the run's policy.
    pub epoch: Epoch,
}

/// A question to a person. Plain data: knowing it gives no right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// Its number.
    pub id: QuestionId,
    /// What it is about.
    pub kind: QuestionKind,
    /// What an answer is bound to.
    pub key: QuestionKey,
    /// When it counts as refused; `None` for [`QuestionKind::Outcome`], which never expires.
    pub until: Option<Tick>,
    /// For whom the call is made; not known any more after a restart.
    pub asker: Option<Asker>,
    /// The tool.
    pub tool: ToolName,
    /// The input in one line, with control and bidirectional characters escaped, cut to a bound.
    pub shown: String,
    /// The step that asks; `None` for [`QuestionKind::Outcome`].
    pub step: Option<Step>,
    /// The rule that asks.
    pub rule: Option<String>,
    /// One sentence in English.
    pub reason: String,
    /// Two persons have to allow it (four eyes); one is enough to deny it.
    pub four_eyes: bool,
    /// Who allowed it already, where two have to.
    pub first: Option<Box<By>>,
}

/// Who gives a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct By {
    /// As the log names them.
    pub name: String,
    /// The person, where the box itself knows them: by a token of theirs, or as one of its users. None for a name that
    /// was only said: whoever speaks or writes in a program's name proves none.
    pub person: Option<String>,
}

impl By {
    /// Somebody whom the box knows.
    #[must_use]
    pub fn person(name: impl Into<String>, person: impl Into<String>) -> By {
        By { name: name.into(), person: Some(person.into()) }
    }

    /// Somebody who said a name.
    #[must_use]
    pub fn said(name: impl Into<String>) -> By {
        By { name: name.into(), person: None }
    }
}

/// What a word came to.
#[derive(Debug)]
pub enum Taken {
    /// The call is permitted.
    Allowed,
    /// One of two has allowed it; another person has to.
    Waits,
    /// The call ends before its start.
    Denied(Refusal),
}

/// A person's word on a `permit` or `confirm` question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Answer {
    /// Yes, for this call only.
    Allow,
    /// No.
    Deny,
}

/// Why an answer was not obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ignored {
    /// No question has this number.
    NoSuchQuestion,
    /// The question is closed: answered, expired, cancelled or void.
    Closed,
    /// The answer was given for another call, input, facts or epoch.
    Stale,
    /// An `outcome` question takes `settle`, the others `allow` or `deny`.
    WrongKind,
    /// Two persons have to allow it, and this one has already.
    SamePerson,
    /// Two persons whom the box knows have to allow it, and it does not know this one.
    UnknownPerson,
    /// The first of the two may not answer any more: it waits for two again.
    Revoked,
}

impl Ignored {
    /// The stable code.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Ignored::NoSuchQuestion => "no_such_question",
            Ignored::Closed => "closed",
            Ignored::Stale => "stale",
            Ignored::WrongKind => "wrong_kind",
            Ignored::SamePerson => "same_person",
            Ignored::UnknownPerson => "unknown_person",
            Ignored::Revoked => "revoked",
        }
    }
}

/// Gives out question numbers; none twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuestionIds {
    next: u64,
}

impl QuestionIds {
    /// From the first number that was never used.
    #[must_use]
    pub fn starting_at(next: QuestionId) -> QuestionIds {
        QuestionIds { next: next.0 }
    }

    /// The next one.
    pub fn take(&mut self) -> QuestionId {
        let id = QuestionId(self.next);
        self.next += 1;
        id
    }

    /// The number was given out at some time.
    #[must_use]
    pub fn was_used(&self, id: QuestionId) -> bool {
        id.0 < self.next
    }

    /// Counts a number as used: a question from before a restart keeps its own.
    pub fn skip(&mut self, id: QuestionId) {
        self.next = self.next.max(id.0 + 1);
    }
}

/// Leave to go to the schedule. Made by [`Docket::clear`] only, once no question of the batch is open.
#[derive(Debug)]
#[must_use = "each permitted call is answered: admit it or refuse it"]
pub struct Permit {
    call: Call,
    decision: Box<Decision>,
    epoch: Epoch,
    /// That it is permitted stands in the log.
    told: bool,
}

impl Permit {
    /// The call.
    #[must_use]
    pub fn id(&self) -> CallId {
        self.call.id()
    }

    /// The request.
    pub fn request(&self) -> &Request {
        self.call.request()
    }

    /// The tool.
    #[must_use]
    pub fn tool(&self) -> &Arc<Tool> {
        self.call.tool()
    }

    /// What the call is by nature.
    #[must_use]
    pub fn nature(&self) -> &Arc<Nature> {
        self.call.nature()
    }

    /// What permitted it: the gate's decision, or the one that a person's yes overruled.
    #[must_use]
    pub fn decision(&self) -> &Decision {
        &self.decision
    }

    /// It runs at once, and past an evidence log that cannot be written: the gate found it protective.
    #[must_use]
    pub fn protective(&self) -> bool {
        self.decision.protective
    }

    /// It still has to be written down that it is permitted. From now on it has not.
    pub(crate) fn tell(&mut self) -> bool {
        !std::mem::replace(&mut self.told, true)
    }

    /// The epoch that it was given under.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Ends the call before its start.
    pub fn refuse(self, why: Why) -> Refusal {
        self.call.refuse(why)
    }

    /// For the stations behind.
    pub(crate) fn into_call(self) -> Call {
        self.call
    }
}

/// A batch at the gate.
#[derive(Debug)]
#[must_use = "a docket holds calls that are not answered yet"]
pub struct Docket {
    permitted: Vec<Permit>,
    waiting: BTreeMap<QuestionId, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    permit: Permit,
    question: Question,
}

/// Judges a batch. What is denied leaves at once; what needs a person's word stays in the docket, and so does, until
/// all of it is answered, what is permitted.
pub fn judge(
    policy: &Policy,
    epoch: Epoch,
    calls: Vec<Call>,
    ids: &mut QuestionIds,
    denials: &mut Denials,
    now: Tick,
) -> (Docket, Vec<Refusal>) {
    let mut docket = Docket { permitted: Vec::new(), waiting: BTreeMap::new() };
    let mut refused = Vec::new();
    for call in calls {
        let wish = call.request().wish();
        let case = Case {
            nature: call.nature(),
            facts: &wish.facts,
            protective: wish.protective,
            classifier: wish.classified,
        };
        let mut decision = decide(policy, case);
        let denied = match decision.verdict {
            Verdict::Deny => denied(policy, denials, &wish.tool, &decision, now),
            Verdict::Allow | Verdict::Ask => Denied::Once,
        };
        if let Denied::Asks(times) = denied {
            decision.verdict = Verdict::Ask;
            decision.reason = format!("denied {times} times by the mode, and wished for again: {}", decision.reason);
        }
        match decision.verdict {
            Verdict::Allow => docket.permitted.push(Permit { call, decision: Box::new(decision), epoch, told: false }),
            Verdict::Deny => {
                let Decision { step, rule, reason, nobody_to_ask, .. } = decision;
                let why = if let Denied::Repeated(times) = denied {
                    Why::DeniedRepeatedly { times, step, rule, reason }
                } else if nobody_to_ask {
                    Why::NobodyToAsk { step, rule, reason }
                } else {
                    Why::Denied { step, rule, reason }
                };
                refused.push(call.refuse(why));
            }
            Verdict::Ask => {
                let id = ids.take();
                let question = question(id, policy, epoch, &call, &decision, now);
                let permit = Permit { call, decision: Box::new(decision), epoch, told: false };
                docket.waiting.insert(id, Waiting { permit, question });
            }
        }
    }
    (docket, refused)
}

/// Counts a denial, but not an operator's: who presses a key again is no model that has lost its way.
fn denied(policy: &Policy, denials: &mut Denials, tool: &ToolName, decision: &Decision, now: Tick) -> Denied {
    let breaker =
        if policy.asker.via.is_operator() { Breaker { denials_max: None, ..policy.breaker } } else { policy.breaker };
    let only_the_mode = decision.step == Step::Mode && decision.rule.is_none() && policy.answerable;
    denials.count(breaker, tool, decision, only_the_mode, now)
}

fn question(id: QuestionId, policy: &Policy, epoch: Epoch, call: &Call, decision: &Decision, now: Tick) -> Question {
    let wish = call.request().wish();
    let is_dangerous = call.nature().risk == Risk::Dangerous;
    Question {
        id,
        kind: if is_dangerous { QuestionKind::Confirm } else { QuestionKind::Permit },
        key: QuestionKey { call: call.id(), args: wish.args.hash(), facts: wish.facts.digest(), epoch },
        until: Some(now.after(policy.ask_patience)),
        asker: Some(policy.asker.clone()),
        tool: wish.tool.clone(),
        shown: shown(wish.args.value()),
        step: Some(decision.step),
        rule: decision.rule.clone(),
        reason: decision.reason.clone(),
        four_eyes: policy.four_eyes && is_dangerous,
        first: None,
    }
}

impl Docket {
    /// What waits for a person's word.
    pub fn questions(&self) -> impl Iterator<Item = &Question> {
        self.waiting.values().map(|waiting| &waiting.question)
    }

    /// The protective calls that wait only for the questions about others. They will start without waiting for the log,
    /// so the log has to know of them before.
    pub(crate) fn protective(&mut self) -> impl Iterator<Item = &mut Permit> {
        self.permitted.iter_mut().filter(|permit| permit.protective())
    }

    /// The earliest moment at which a question expires.
    #[must_use]
    pub fn wake_at(&self) -> Option<Tick> {
        self.waiting.values().filter_map(|waiting| waiting.question.until).min()
    }

    /// Takes a person's word. A yes moves the call to the permitted ones, where two have to say it the second yes; a no
    /// refuses the call, and it alone.
    ///
    /// # Errors
    /// When the question is not open here, or the answer was given for something else.
    pub fn answer(&mut self, id: QuestionId, key: QuestionKey, answer: Answer, by: &By) -> Result<Taken, Ignored> {
        let Some(waiting) = self.waiting.get_mut(&id) else { return Err(Ignored::Closed) };
        let question = &mut waiting.question;
        if question.key != key {
            return Err(Ignored::Stale);
        }
        if answer == Answer::Allow && question.four_eyes {
            match (&question.first, &by.person) {
                (_, None) => return Err(Ignored::UnknownPerson),
                (None, Some(_)) => {
                    question.first = Some(Box::new(by.clone()));
                    return Ok(Taken::Waits);
                }
                (Some(first), person) if first.person == *person => return Err(Ignored::SamePerson),
                (Some(_), Some(_)) => {}
            }
        }
        let Some(Waiting { permit, .. }) = self.waiting.remove(&id) else { return Err(Ignored::Closed) };
        Ok(match answer {
            Answer::Allow => {
                self.permitted.push(permit);
                Taken::Allowed
            }
            Answer::Deny => Taken::Denied(permit.refuse(Why::DeniedByPerson { by: by.name.clone() })),
        })
    }

    /// A person may not answer any more: what they allowed as the first of two waits for two again.
    pub fn forget(&mut self, person: &str) -> Vec<(QuestionId, By)> {
        let questions = self.waiting.values_mut().map(|waiting| &mut waiting.question);
        let theirs = |question: &mut Question| {
            let first = question.first.take_if(|first| first.person.as_deref() == Some(person))?;
            Some((question.id, *first))
        };
        questions.filter_map(theirs).collect()
    }

    /// Refuses what nobody answered in time; a question is open up to its last moment and not in it.
    #[must_use]
    pub fn expire(&mut self, now: Tick) -> Vec<(QuestionId, Refusal)> {
        let late = self.waiting.extract_if(.., |_, waiting| waiting.question.until.is_some_and(|until| until <= now));
        late.map(|(id, waiting)| (id, waiting.permit.refuse(Why::AskTimedOut))).collect()
    }

    /// Refuses what touches the same things as a protective action: it was wished for before the emergency.
    #[must_use]
    pub fn supersede(&mut self, protective: &Nature, by: CallId) -> Vec<(Option<QuestionId>, Refusal)> {
        let meets = |permit: &Permit| {
            !permit.protective() && permit.nature().keys.interfere(&protective.keys) && permit.id() != by
        };
        let why = Why::Superseded { by };
        let waiting = self.waiting.extract_if(.., |_, waiting| meets(&waiting.permit));
        let mut gone: Vec<_> = waiting.map(|(id, waiting)| (Some(id), waiting.permit.refuse(why.clone()))).collect();
        let permitted = self.permitted.extract_if(.., |permit| meets(permit));
        gone.extend(permitted.map(|permit| (None, permit.refuse(why.clone()))));
        gone
    }

    /// Refuses the whole batch: cancelled, or judged under a policy that is no more.
    #[must_use]
    pub fn void(self, why: &Why) -> Vec<(Option<QuestionId>, Refusal)> {
        let waiting = self.waiting.into_iter().map(|(id, waiting)| (Some(id), waiting.permit));
        let permitted = self.permitted.into_iter().map(|permit| (None, permit));
        permitted.chain(waiting).map(|(id, permit)| (id, permit.refuse(why.clone()))).collect()
    }

    /// Gives out the permits, in call order, once no question is open.
    ///
    /// # Errors
    /// The docket itself, while one is.
    pub fn clear(mut self) -> Result<Vec<Permit>, Docket> {
        if self.waiting.is_empty() {
            self.permitted.sort_by_key(Permit::id);
            Ok(self.permitted)
        } else {
            Err(self)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::breaker::Trips;
    use crate::gate::policy::Mode;
    use crate::gate::rule::{Authority, Rule, Rules, Verb};
    use crate::request::Via;
    use crate::sample;
    use std::time::Duration;

    fn open(verbs: &[&str]) -> (Docket, Vec<Question>) {
        let mut ids = QuestionIds::starting_at(QuestionId(7));
        let policy = sample::policy(Via::Mcp);
        let mut denials = Denials::default();
        let (docket, refused) = judge(&policy, Epoch(3), sample::calls(1, verbs), &mut ids, &mut denials, Tick(5));
        assert!(refused.is_empty());
        let questions = docket.questions().cloned().collect();
        (docket, questions)
    }

    fn by(name: &str) -> By {
        By::person(name, name)
    }

    #[test]
    fn two_persons_whom_the_box_knows_allow_what_is_dangerous_and_one_denies_it() {
        let begin = || {
            let mut ids = QuestionIds::starting_at(QuestionId(7));
            let policy = Policy { four_eyes: true, ..sample::policy(Via::Mcp) };
            let mut denials = Denials::default();
            let calls = sample::calls(1, &["write:a", "danger"]);
            let (docket, _) = judge(&policy, Epoch(3), calls, &mut ids, &mut denials, Tick(5));
            let keys: Vec<QuestionKey> = docket.questions().map(|question| question.key).collect();
            (docket, keys)
        };
        let (mild, dangerous) = (QuestionId(7), QuestionId(8));
        let (mut docket, keys) = begin();
        let mut say = |id: QuestionId, answer, who: &By| {
            let key = keys[usize::try_from(id.0 - 7).expect("an index")];
            match docket.answer(id, key, answer, who) {
                Ok(Taken::Allowed) => "allowed",
                Ok(Taken::Waits) => "waits",
                Ok(Taken::Denied(_)) => "denied",
                Err(why) => why.code(),
            }
        };
        // What is not dangerous needs one, and anybody.
        assert_eq!(say(mild, Answer::Allow, &By::said("somebody")), "allowed");
        assert_eq!(say(dangerous, Answer::Allow, &By::said("li")), "unknown_person");
        assert_eq!(say(dangerous, Answer::Allow, &By::person("li@console", "li")), "waits");
        // The same person at another place, and somebody who only says another name.
        assert_eq!(say(dangerous, Answer::Allow, &By::person("li@console", "li")), "same_person");
        assert_eq!(say(dangerous, Answer::Allow, &By::person("li", "li")), "same_person");
        assert_eq!(say(dangerous, Answer::Allow, &By::said("wang")), "unknown_person");
        assert_eq!(say(dangerous, Answer::Allow, &by("wang")), "allowed");
        assert_eq!(say(dangerous, Answer::Allow, &by("zhao")), "closed");
        assert_eq!(permitted(docket).map(|calls| calls.len()), Some(2));
        // Anybody denies, before the first yes and after it, and a yes of somebody who has gone does not count.
        for is_allowed_once in [false, true] {
            let (mut docket, keys) = begin();
            if is_allowed_once {
                assert!(matches!(docket.answer(dangerous, keys[1], Answer::Allow, &by("li")), Ok(Taken::Waits)));
            }
            let denied = docket.answer(dangerous, keys[1], Answer::Deny, &By::said("somebody"));
            assert!(matches!(denied, Ok(Taken::Denied(_))), "{denied:?}");
        }
        let (mut docket, keys) = begin();
        assert!(matches!(docket.answer(dangerous, keys[1], Answer::Allow, &by("li")), Ok(Taken::Waits)));
        assert_eq!(docket.forget("wang"), []);
        assert_eq!(docket.forget("li"), [(dangerous, by("li"))]);
        assert!(matches!(docket.answer(dangerous, keys[1], Answer::Allow, &by("wang")), Ok(Taken::Waits)));
    }

    fn permitted(docket: Docket) -> Option<Vec<CallId>> {
        docket.clear().ok().map(|permits| permits.iter().map(Permit::id).collect())
    }

    #[test]
    fn nothing_is_permitted_while_one_question_of_the_batch_is_open() {
        let (mut docket, asked) = open(&["look", "write:a", "look", "danger"]);
        let kinds: Vec<_> = asked.iter().map(|one| (one.id, one.kind, one.key.call.position)).collect();
        assert_eq!(kinds, [(QuestionId(7), QuestionKind::Permit, 1), (QuestionId(8), QuestionKind::Confirm, 3)]);
        docket = docket.clear().unwrap_err();
        assert!(matches!(docket.answer(QuestionId(8), asked[1].key, Answer::Allow, &by("w")), Ok(Taken::Allowed)));
        docket = docket.clear().unwrap_err();
        let Ok(Taken::Denied(refusal)) = docket.answer(QuestionId(7), asked[0].key, Answer::Deny, &by("w")) else {
            panic!("a no refuses");
        };
        assert_eq!(refusal.why(), &Why::DeniedByPerson { by: "w".into() });
        // A refusal closes only its own call; the others go on in call order.
        assert_eq!(permitted(docket), Some(vec![sample::id(1, 0), sample::id(1, 2), sample::id(1, 3)]));
    }

    /// The case G38 (one answer for two calls) and S05 (out of order, twice, unknown).
    #[test]
    fn an_answer_fits_one_call_one_input_one_epoch_and_counts_once() {
        let (mut docket, asked) = open(&["write:a", "write:b"]);
        let key = asked[0].key;
        let other_epoch = QuestionKey { epoch: Epoch(4), ..key };
        let other_input = QuestionKey { args: Digest([0; 32]), ..key };
        let other_facts = QuestionKey { facts: Digest([0; 32]), ..key };
        for stale in [other_epoch, other_input, other_facts, asked[1].key] {
            assert_eq!(docket.answer(QuestionId(7), stale, Answer::Allow, &by("w")).unwrap_err(), Ignored::Stale);
        }
        assert!(matches!(docket.answer(QuestionId(7), key, Answer::Allow, &by("w")), Ok(Taken::Allowed)));
        assert_eq!(docket.answer(QuestionId(7), key, Answer::Deny, &by("w")).unwrap_err(), Ignored::Closed);
        assert_eq!(docket.answer(QuestionId(99), key, Answer::Deny, &by("w")).unwrap_err(), Ignored::Closed);
        let left: Vec<CallId> = docket.questions().map(|question| question.key.call).collect();
        assert_eq!(left, [sample::id(1, 1)]);
        assert_eq!(permitted(docket), None);
    }

    #[test]
    fn a_question_is_open_before_its_deadline_and_not_at_it() {
        let deadline = Tick(5).after(Duration::from_secs(120));
        for (now, late) in [(Tick(deadline.0 - 1), 0), (deadline, 1), (Tick(deadline.0 + 1), 1)] {
            let (mut docket, _) = open(&["write:a"]);
            assert_eq!(docket.wake_at(), Some(deadline));
            let expired = docket.expire(now);
            assert_eq!(expired.len(), late, "{now:?}");
            assert!(expired.iter().all(|(_, refusal)| refusal.why() == &Why::AskTimedOut));
        }
    }

    #[test]
    fn where_nobody_can_be_asked_a_question_is_a_no() {
        let mut ids = QuestionIds::starting_at(QuestionId(1));
        let policy = Policy { answerable: false, ..sample::policy(Via::Mcp) };
        let (calls, mut denials) = (sample::calls(1, &["write:a", "look"]), Denials::default());
        let (docket, refused) = judge(&policy, Epoch(0), calls, &mut ids, &mut denials, Tick(0));
        assert_eq!(refused.iter().map(|one| one.why().code()).collect::<Vec<_>>(), ["nobody_to_ask"]);
        assert_eq!(permitted(docket), Some(vec![sample::id(1, 1)]));
        assert_eq!(ids.take(), QuestionId(1));
    }

    /// What `act` gets for `write:a`, one batch after another at these seconds, in `mode` with `trips` after 3.
    fn again(mode: Mode, trips: Trips, rule: Option<&str>, answerable: bool, seconds: &[u64]) -> Vec<String> {
        let rules = rule.map(|rule| Rule::parse(Verb::Deny, rule, Authority::Config, None).unwrap());
        let policy = Policy {
            mode,
            answerable,
            rules: Arc::new(Rules::new(rules.into_iter().collect())),
            breaker: Breaker { denials_max: Some(3), trips },
            ..sample::policy(Via::Agent)
        };
        let (mut ids, mut denials) = (QuestionIds::starting_at(QuestionId(1)), Denials::default());
        let mut said = Vec::new();
        for (batch, second) in (1..).zip(seconds) {
            let (calls, now) = (sample::calls(batch, &["write:a"]), Tick(second * 1_000_000_000));
            let (docket, refused) = judge(&policy, Epoch(0), calls, &mut ids, &mut denials, now);
            said.extend(refused.iter().map(|one| one.why().code().to_owned()));
            said.extend(docket.questions().map(|one| one.kind.word().to_owned()));
        }
        said
    }

    #[test]
    fn repeated_denials_say_so_and_only_what_the_mode_denied_may_become_a_question() {
        let (no, too_many) = ("nobody_to_ask", "denied_repeatedly");
        assert_eq!(again(Mode::DontAsk, Trips::ToAStop, None, true, &[0, 1, 2, 3]), [no, no, too_many, too_many]);
        assert_eq!(again(Mode::DontAsk, Trips::ToAQuestion, None, true, &[0, 1, 2]), [no, no, "permit"]);
        // Nobody there, or a rule, or the boundary of plan: it stays a no.
        assert_eq!(again(Mode::DontAsk, Trips::ToAQuestion, None, false, &[0, 1, 2]), [no, no, too_many]);
        let rule = again(Mode::DontAsk, Trips::ToAQuestion, Some("act"), true, &[0, 1, 2, 3]);
        assert_eq!(rule, ["denied", "denied", too_many, too_many]);
        assert_eq!(again(Mode::Plan, Trips::ToAQuestion, None, true, &[0, 1, 2]), ["denied", "denied", too_many]);
        // Far apart they are not one run of denials; the window is counted from the last one.
        assert_eq!(again(Mode::DontAsk, Trips::ToAStop, None, true, &[0, 601, 1201, 1801]), [no, no, no, too_many]);
    }
}
