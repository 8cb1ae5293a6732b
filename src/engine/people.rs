//! Owns who may open the console, and as what: changed in the state first, known here from then on, told in evidence.
//!
//! A token leaves this room once, to whoever makes it; what stays is its digest. Who is taken out is out at once: the
//! surfaces look here at each request, and hear of every change.

use std::sync::Arc;

use interlock_domain::time::Wall;
use thiserror::Error;
use tokio::sync::watch;

use super::keeper::{Keeper, NotKept};
use crate::record::{Row, kind};
use crate::store::queue::{Entry, Writer};
use crate::store::state::console::digest;
pub use crate::store::state::console::{KeptPerson, secret};
use serde_json::json;

/// People of one box: all shifts of a plant, and few enough to compare every token.
pub const PEOPLE_MAX: usize = 128;

/// Longest name, in characters.
const NAME_LEN_MAX: usize = 64;

/// What a person may do: each role may what stands before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Look.
    Read,
    /// Act on background tasks, and say no.
    Operate,
    /// Say yes.
    Approve,
}

/// Stands behind the name of a person where they act at the console.
pub const AT_THE_CONSOLE: &str = "@console";

impl Role {
    /// All of them.
    pub const ALL: [Role; 3] = [Role::Read, Role::Operate, Role::Approve];

    /// As it is written.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Operate => "operate",
            Role::Approve => "approve",
        }
    }

    /// Reads [`Role::word`].
    #[must_use]
    pub fn from_word(word: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.word() == word)
    }
}

/// Somebody who may open the console.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The name.
    pub name: String,
    /// What they may do.
    pub role: Role,
    kept: KeptPerson,
}

impl Person {
    /// Who let them in.
    #[must_use]
    pub fn by(&self) -> &str {
        &self.kept.by
    }

    /// Since when.
    #[must_use]
    pub fn made(&self) -> Wall {
        self.kept.made
    }
}

/// Why nobody was let in, or taken out.
#[derive(Debug, Error)]
pub enum NotChanged {
    /// The name is no name.
    #[error("{0:?} is no name: 1 to {NAME_LEN_MAX} letters, digits, _ - or .")]
    Name(String),
    /// A second token for the same name would put out the first without a word.
    #[error("somebody is called {0:?} already")]
    Known(String),
    /// There is no room.
    #[error("{PEOPLE_MAX} people are known, and there is room for no more")]
    Full,
    /// Nobody is called so.
    #[error("nobody is called {0:?}")]
    Nobody(String),
    /// The system has no randomness to give.
    #[error("the system has no randomness for a token")]
    NoRandom,
    /// What the state says.
    #[error(transparent)]
    NotKept(#[from] NotKept),
}

/// The way to them. Cheap to clone.
#[derive(Clone)]
pub struct People {
    keeper: Keeper,
    writer: Writer,
    known: Arc<watch::Sender<Arc<[Person]>>>,
}

impl People {
    /// With those whom the state knows.
    #[must_use]
    pub fn new(keeper: Keeper, writer: Writer, kept: Vec<KeptPerson>) -> People {
        People { keeper, writer, known: Arc::new(watch::Sender::new(people(kept))) }
    }

    /// All of them, by name.
    #[must_use]
    pub fn all(&self) -> Arc<[Person]> {
        Arc::clone(&self.known.borrow())
    }

    /// Changes with each of them.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<Arc<[Person]>> {
        self.known.subscribe()
    }

    /// Whose token it is. All are compared, each in full: the time that it takes says nothing of how near a guess was.
    #[must_use]
    pub fn holder(&self, token: &str) -> Option<Person> {
        let digest = digest(token);
        let known = self.all();
        let is_it = |person: &Person| same(&person.kept.digest, &digest);
        let found = known.iter().fold(None, |found, person| if is_it(person) { Some(person) } else { found });
        found.cloned()
    }

    /// The same person, with the same token and the same role, is still let in.
    #[must_use]
    pub fn lets_in(&self, person: &Person) -> bool {
        self.known.borrow().contains(person)
    }

    /// Lets somebody in; gives the token, which is told nowhere else.
    ///
    /// # Errors
    /// [`NotChanged`].
    pub async fn add(&self, name: &str, role: Role, by: &str) -> Result<String, NotChanged> {
        let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || name.chars().count() > NAME_LEN_MAX || !name.chars().all(fits) {
            return Err(NotChanged::Name(name.to_owned()));
        }
        let known = self.all();
        if known.iter().any(|person| person.name == name) {
            return Err(NotChanged::Known(name.to_owned()));
        }
        if known.len() >= PEOPLE_MAX {
            return Err(NotChanged::Full);
        }
        let token = secret().ok_or(NotChanged::NoRandom)?;
        let kept = KeptPerson {
            name: name.to_owned(),
            role: role.word().to_owned(),
            digest: digest(&token),
            by: by.to_owned(),
            made: super::stamp::now().wall,
        };
        let known = Arc::clone(&self.known);
        let keeping = self.keeper.with(move |state| {
            state.keep_person(&kept)?;
            known.send_modify(|known| {
                let at = known.partition_point(|one| one.name < kept.name);
                let mut all = known.to_vec();
                all.insert(at, Person { name: kept.name.clone(), role, kept });
                *known = all.into();
            });
            Ok(())
        });
        keeping.await?;
        self.note("added", name, Some(role), by);
        Ok(token)
    }

    /// Takes somebody out, at once.
    ///
    /// # Errors
    /// [`NotChanged`].
    pub async fn revoke(&self, name: &str, by: &str) -> Result<(), NotChanged> {
        // Out of memory first: who is taken out is out, also when the disk takes no word of it. Then they are in again
        // after a restart, and the error says that it was not written. Once more with the state: of two changes at once,
        // the later one counts.
        take_out(&self.known, name);
        let (known, gone) = (Arc::clone(&self.known), name.to_owned());
        let forgetting = self.keeper.with(move |state| {
            let was_kept = state.forget_person(&gone)?;
            take_out(&known, &gone);
            Ok(was_kept)
        });
        if !forgetting.await? {
            return Err(NotChanged::Nobody(name.to_owned()));
        }
        self.note("revoked", name, None, by);
        Ok(())
    }

    fn note(&self, to: &'static str, name: &str, role: Option<Role>, by: &str) {
        let row = Row { to: Some(to.into()), ..Row::new(super::stamp::now(), kind::CONSOLE_PERSON) };
        let row = row.detailed(&json!({ "name": name, "role": role.map(Role::word), "by": by }));
        self.writer.append_or_count(Entry::urgent(row));
    }
}

fn take_out(known: &watch::Sender<Arc<[Person]>>, name: &str) {
    known.send_modify(|known| *known = known.iter().filter(|person| person.name != name).cloned().collect());
}

/// Whether two secrets, or their digests, are the same: the time that it takes says nothing of where they differ.
#[must_use]
pub fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}

/// A role that this build does not know lets nobody in.
fn people(kept: Vec<KeptPerson>) -> Arc<[Person]> {
    let person = |kept: KeptPerson| Some(Person { name: kept.name.clone(), role: Role::from_word(&kept.role)?, kept });
    kept.into_iter().filter_map(person).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::engine::{keeper, stamp};
    use crate::store::state::State;
    use crate::store::{Limits, Settings, Store, chain};

    #[tokio::test]
    async fn who_is_taken_out_stays_out_when_the_disk_took_no_word_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let settings = Settings {
            state: dir.path().to_owned(),
            boot_id: "test".to_owned(),
            version: "0".to_owned(),
            clock: stamp::now,
            limits: Limits::default(),
            algorithm: chain::Algorithm::Sha256,
        };
        let store = Store::open(&settings).unwrap().store;
        let (keeper, _thread) = keeper::start(State::open(dir.path()).unwrap()).unwrap();
        let people = People::new(keeper.clone(), store.writer(), Vec::new());
        let token = people.add("wang", Role::Approve, "root").await.unwrap();
        assert_eq!(people.holder(&token).map(|person| person.role), Some(Role::Approve));

        let ((begin, begun), (go_on, wait), (tell, drained)) = (channel(), channel::<()>(), channel());
        let hold = move |_: &mut State| {
            begin.send(()).unwrap();
            wait.recv().unwrap_err();
            Ok(())
        };
        keeper.later(hold).unwrap();
        begun.recv().unwrap();
        let fill = || {
            let tell = tell.clone();
            keeper.later(move |_| {
                tell.send(()).unwrap();
                Ok(())
            })
        };
        let waiting = std::iter::repeat_with(fill).take_while(Result::is_ok).count();
        let refused = people.revoke("wang", "root").await.unwrap_err();
        assert!(matches!(refused, NotChanged::NotKept(NotKept::Busy)), "{refused}");
        assert_eq!(people.holder(&token), None);

        drop(go_on);
        assert_eq!(drained.iter().take(waiting).count(), waiting);
        people.add("li", Role::Read, "root").await.unwrap();
        assert_eq!(people.holder(&token), None, "somebody else was let in meanwhile");
        assert_eq!(people.all().iter().map(|person| person.name.as_str()).collect::<Vec<_>>(), ["li"]);
    }
}
