//! `console token …` on the socket: who may open the console, and as what.

use nix::unistd::Uid;
use serde_json::{Value, json};

use super::verbs::{Answer1, Args, Context};
use super::wire::{Kind, Trouble};
use crate::engine::keeper::NotKept;
use crate::engine::people::{NotChanged, Person, Role};
use crate::record::rfc3339;

pub(super) fn list(context: &Context) -> Vec<Value> {
    let people = context.people.all();
    let row = |person: &Person| {
        json!({
            "name": person.name,
            "role": person.role.word(),
            "by": person.by(),
            "since": rfc3339(person.made()),
        })
    };
    people.iter().map(row).collect()
}

pub(super) async fn add(context: &Context, user: &str, args: &Args<'_>) -> Answer1 {
    let (name, word) = (args.need("name")?, args.need("role")?);
    if !may_admit(user) {
        let hint = format!("sudo interlock console token add {name} --role {word}");
        let fact = "who may open the console is said by root or by the account of the service";
        return Err(Trouble::new(Kind::Permission, fact).hint(hint));
    }
    let role = Role::from_word(word).ok_or_else(|| {
        let known: Vec<_> = Role::ALL.iter().map(|role| role.word()).collect();
        Trouble::new(Kind::Usage, format!("there is no role {word:?}")).hint(format!("one of {}", known.join(", ")))
    })?;
    let token = context.people.add(name, role, user).await.map_err(|error| trouble(&error))?;
    Ok(json!({ "name": name, "role": role.word(), "token": token, "console": context.status["console"] }))
}

pub(super) async fn revoke(context: &Context, user: &str, args: &Args<'_>) -> Answer1 {
    let name = args.need("name")?;
    context.people.revoke(name, user).await.map_err(|error| trouble(&error))?;
    context.mediator.forget(name.to_owned()).await;
    let message = if args.is_zh() {
        format!("{name} 的令牌已作废，其会话已结束")
    } else {
        format!("the token of {name} is good for nothing any more; what was open with it is closed")
    };
    Ok(json!({ "name": name, "message": message }))
}

/// Whoever could give out tokens could be two persons.
fn may_admit(user: &str) -> bool {
    [Uid::from_raw(0), nix::unistd::geteuid()].into_iter().any(|uid| super::user(uid) == user)
}

fn trouble(error: &NotChanged) -> Trouble {
    let (kind, hint) = match error {
        NotChanged::Name(_) => (Kind::Usage, None),
        NotChanged::Known(_) => (Kind::NotSo, Some("interlock console token revoke NAME, then add it again")),
        NotChanged::Full => (Kind::NotSo, Some("interlock console token list; revoke those that are not needed")),
        NotChanged::Nobody(_) => (Kind::NotFound, Some("interlock console token list")),
        NotChanged::NoRandom => (Kind::Bug, None),
        NotChanged::NotKept(NotKept::Busy | NotKept::Stopping) => (Kind::Busy, None),
        NotChanged::NotKept(NotKept::Store(_)) => (Kind::NotSo, Some("interlock doctor")),
    };
    let trouble = Trouble::new(kind, error.to_string());
    match hint {
        Some(hint) => trouble.hint(hint),
        None => trouble,
    }
}
