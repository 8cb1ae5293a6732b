//! Who is at the other end: sessions of people who came with a token, and how often a token may be tried.
//!
//! A session is an unguessable cookie that the browser sends to this origin only. It ends with its token, with its
//! person's role, when it is not used, and with the shift. Both tables are bounded, and both live in memory: a restart
//! ends all sessions.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use interlock_domain::time::Tick;

use crate::engine::people::{AT_THE_CONSOLE, People, Person, same, secret};

/// Sessions of all people at once, and of one: whoever logs in again and again puts out their own.
const SESSIONS_MAX: usize = 256;
const SESSIONS_EACH_MAX: usize = 16;

/// How long a session lasts without a request of a person; what an open page asks by itself does not count.
const IDLE_MAX: Duration = Duration::from_secs(30 * 60);

/// How long a session lasts at most: a shift.
const SESSION_MAX: Duration = Duration::from_secs(12 * 3600);

/// Wrong tokens from one address in a minute, after which the right one has to wait too.
const TRIES_MAX: u32 = 10;
const TRIES_WINDOW: Duration = Duration::from_secs(60);

/// Addresses whose tries are counted.
const ADDRESSES_MAX: usize = 512;

/// A session as a request sees it.
#[derive(Debug, Clone)]
pub(super) struct Visit {
    pub(super) person: Person,
    /// What each form of the session carries, and no page from elsewhere knows.
    pub(super) csrf: Arc<str>,
    /// The name in the table; not the cookie.
    key: Arc<str>,
}

impl Visit {
    /// The person as evidence names them: nobody of the machine itself has such a name.
    pub(super) fn user(&self) -> String {
        format!("{}{AT_THE_CONSOLE}", self.person.name)
    }
}

/// What is told on the next page.
#[derive(Debug, Clone)]
pub(super) struct Note {
    pub(super) is_good: bool,
    pub(super) text: String,
}

struct Session {
    visit: Visit,
    cookie: String,
    begun: Tick,
    used: Tick,
    /// What is told on the next page, and what was told on the last one.
    note: Option<Note>,
    told: Option<Note>,
}

/// The sessions.
#[derive(Default)]
pub(super) struct Sessions {
    // Each request looks here for a moment and waits for nothing while it does.
    table: Mutex<BTreeMap<Arc<str>, Session>>,
}

impl Sessions {
    fn table(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, Session>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins one; gives the cookie. The one that was not used for longest makes room: of the same person, where they
    /// have as many as one has.
    pub(super) fn begin(&self, person: Person, now: Tick) -> Option<String> {
        let (key, cookie, csrf): (Arc<str>, _, Arc<str>) = (secret()?.into(), secret()?, secret()?.into());
        let visit = Visit { person, csrf, key: Arc::clone(&key) };
        let mut table = self.table();
        let is_own = |session: &Session| session.visit.person.name == visit.person.name;
        let gone = if table.values().filter(|session| is_own(session)).count() >= SESSIONS_EACH_MAX {
            oldest(&table, is_own)
        } else if table.len() >= SESSIONS_MAX {
            oldest(&table, |_| true)
        } else {
            None
        };
        if let Some(gone) = gone {
            table.remove(&gone);
        }
        table.insert(key, Session { visit, cookie: cookie.clone(), begun: now, used: now, note: None, told: None });
        Some(cookie)
    }

    /// Whose cookie it is, while the session lasts and its person is let in.
    /// `counts` says whether a person asked: a page that is open does not keep its session alive.
    pub(super) fn find(&self, cookie: &str, people: &People, now: Tick, counts: bool) -> Option<Visit> {
        let mut table = self.table();
        table.retain(|_, session| lasts(session, now) && people.lets_in(&session.visit.person));
        // All are compared, each in full.
        let is_it = |session: &Session| same(session.cookie.as_bytes(), cookie.as_bytes());
        let found = table.values_mut().fold(None, |found, session| if is_it(session) { Some(session) } else { found });
        found.map(|session| {
            if counts {
                session.used = now;
            }
            session.visit.clone()
        })
    }

    pub(super) fn end(&self, visit: &Visit) {
        self.table().remove(&visit.key);
    }

    pub(super) fn note(&self, visit: &Visit, note: Note) {
        if let Some(session) = self.table().get_mut(&visit.key) {
            session.note = Some(note);
        }
    }

    /// What is to be told. It is told on one page, and stays there when that page fetches itself again: what was done is
    /// often what changed.
    pub(super) fn note_for(&self, visit: &Visit, by_itself: bool) -> Option<Note> {
        let mut table = self.table();
        let session = table.get_mut(&visit.key)?;
        if by_itself {
            return session.told.clone();
        }
        session.told = session.note.take();
        session.told.clone()
    }
}

/// The one that was not used for longest.
fn oldest(table: &BTreeMap<Arc<str>, Session>, of: impl Fn(&Session) -> bool) -> Option<Arc<str>> {
    let known = table.iter().filter(|(_, session)| of(session));
    known.min_by_key(|(_, session)| session.used).map(|(key, _)| Arc::clone(key))
}

fn lasts(session: &Session, now: Tick) -> bool {
    now < session.used.after(IDLE_MAX) && now < session.begun.after(SESSION_MAX)
}

/// Tries that went wrong, by address.
#[derive(Default)]
pub(super) struct Tries {
    // As the sessions.
    table: Mutex<BTreeMap<IpAddr, (u32, Tick)>>,
}

impl Tries {
    /// Whether an address may try now. Where more addresses try than are counted, the new ones wait.
    pub(super) fn may(&self, from: IpAddr, now: Tick) -> bool {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.retain(|_, (_, since)| now < since.after(TRIES_WINDOW));
        match table.get(&from) {
            Some((tries, _)) => *tries < TRIES_MAX,
            None => table.len() < ADDRESSES_MAX,
        }
    }

    pub(super) fn failed(&self, from: IpAddr, now: Tick) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.entry(from).or_insert((0, now)).0 += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_tokens_are_counted_by_address_and_forgotten_after_the_window() {
        let (tries, start) = (Tries::default(), Tick(5));
        let (one, other) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([10, 0, 0, 1]));
        for _ in 0..TRIES_MAX {
            assert!(tries.may(one, start));
            tries.failed(one, start);
        }
        assert!(!tries.may(one, start));
        assert!(tries.may(other, start));
        let end = start.after(TRIES_WINDOW);
        assert!(!tries.may(one, Tick(end.0 - 1)));
        assert!(tries.may(one, end));
    }

    #[test]
    fn more_addresses_than_are_counted_wait() {
        let tries = Tries::default();
        for number in 0..u32::try_from(ADDRESSES_MAX).unwrap() {
            tries.failed(IpAddr::from(number.to_be_bytes()), Tick(0));
        }
        assert!(!tries.may(IpAddr::from([200, 0, 0, 1]), Tick(1)));
        assert!(tries.may(IpAddr::from([0, 0, 0, 1]), Tick(1)));
    }
}
