//! One token in place of another: one exchange at a time, each in a task of its own, and not again and again.
//!
//! An authorization server that rotates refresh tokens has forgotten the old one when it answers. From there on there is
//! no way back, so nothing that ends a request may end the exchange, or the keeping of what it gave. Only the server's
//! own word ends a grant; every other failure leaves what is kept as it is, and is not repeated by the next call, which
//! would wait as long.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use reqwest::Url;
use reqwest::header::HeaderValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::fetch::{self, Granted, Trouble};
use super::kept::{Kept, Registered};
use super::metadata::{Challenge, Method};
use super::{Account, kept};
use crate::sys::clock;
use crate::tool::mcp::{http, keep};

/// How long before its end a token is renewed, in milliseconds: a request takes a while to arrive, and clocks differ. A
/// token of a short life is renewed in the last quarter of it.
const RENEW_BEFORE_MS: i64 = 30_000;

/// The pause after an exchange that failed doubles from the first to the last of these. The first fits twice into the
/// time before a token's end, so that one lost connection costs no call.
const PAUSE_FIRST: Duration = Duration::from_secs(10);
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Why there is no other token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum NoToken {
    /// It takes a person.
    Person,
    /// It may be had later; what is in the way.
    Later(String),
}

/// Exchanges that failed, one after the other.
#[derive(Debug, Default)]
pub(super) struct Pause {
    failures: u32,
    /// Nothing is asked before that, and why.
    not_before: Option<(Instant, String)>,
}

impl Pause {
    fn begin(&mut self, why: &str, now: Instant) {
        let pause = PAUSE_FIRST.saturating_mul(1 << self.failures.min(16)).min(PAUSE_MAX);
        self.failures = self.failures.saturating_add(1);
        self.not_before = Some((now + pause, why.to_owned()));
    }

    /// What keeps us from asking now.
    fn holds(&self, now: Instant) -> Option<String> {
        let (not_before, why) = self.not_before.as_ref().filter(|(not_before, _)| now < *not_before)?;
        let left = (*not_before - now).as_secs() + 1;
        Some(format!("{why}; it is asked again in {left} s"))
    }
}

/// From when on a token is renewed that is given now and ends then.
fn renewed_from(now_ms: i64, until_ms: i64) -> i64 {
    until_ms.saturating_sub(RENEW_BEFORE_MS.min((until_ms.saturating_sub(now_ms)).max(0) / 4))
}

impl Account {
    /// What a request carries; none where there is no token yet.
    pub(in crate::tool::mcp) async fn bearer(self: &Arc<Account>) -> Option<HeaderValue> {
        let (kept, renew_from) = {
            let state = self.state();
            (state.kept.clone()?, state.renew_from)
        };
        let now = clock::wall().0;
        if let (Some(refresh), Some(until)) = (&kept.refresh, kept.until) {
            if now >= until {
                // Where that goes wrong, the server says what it thinks of the old one.
                return self.renew(&kept.access).await.ok().or_else(|| http::bearer(&kept.access));
            }
            if now >= renew_from.unwrap_or(until - RENEW_BEFORE_MS) {
                // The old one is good meanwhile: nobody waits for a server that takes its time.
                self.renew_aside(&kept, refresh);
            }
        }
        http::bearer(&kept.access)
    }

    /// Waits for the exchange that is under way, if there is one, and lets no other begin.
    pub(in crate::tool::mcp) async fn settled(&self) {
        let _late = timeout(fetch::PATIENCE, self.exchanging.acquire()).await.is_err();
        // Whoever comes later would use up the refresh token that the next account has read already.
        self.exchanging.close();
    }

    /// The leave to ask for tokens: one at a time, since an authorization server takes a second use of a refresh token
    /// for a theft.
    pub(super) async fn turn(&self) -> Result<OwnedSemaphorePermit, NoToken> {
        Arc::clone(&self.exchanging).acquire_owned().await.map_err(|_| stopping())
    }

    /// Carries an exchange to its end, whoever waits for it or does not any more.
    pub(super) async fn alone<T: Send + 'static>(
        turn: OwnedSemaphorePermit,
        exchange: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, NoToken> {
        let running = tokio::spawn(async move {
            let ended = exchange.await;
            drop(turn);
            ended
        });
        running.await.map_err(|_| stopping())
    }

    /// Another token in place of `used`, by the refresh token; one that somebody else has had meanwhile counts too.
    pub(super) async fn renew(self: &Arc<Account>, used: &str) -> Result<HeaderValue, NoToken> {
        let turn = self.turn().await?;
        let kept = self.kept().ok_or(NoToken::Person)?;
        if kept.access != used {
            return http::bearer(&kept.access).ok_or_else(unfit);
        }
        let refresh = kept.refresh.clone().ok_or(NoToken::Person)?;
        self.may_ask()?;
        let account = Arc::clone(self);
        Account::alone(turn, async move { account.refresh(&kept, &refresh).await }).await?
    }

    /// The same, for later requests: nobody waits for it.
    fn renew_aside(self: &Arc<Account>, kept: &Kept, refresh: &str) {
        let Ok(turn) = Arc::clone(&self.exchanging).try_acquire_owned() else { return };
        if self.may_ask().is_err() || self.kept().as_ref() != Some(kept) {
            return;
        }
        let (account, kept, refresh) = (Arc::clone(self), kept.clone(), refresh.to_owned());
        // Whoever wants to know of its end waits for its turn.
        drop(tokio::spawn(async move {
            let _told = account.refresh(&kept, &refresh).await.is_err();
            drop(turn);
        }));
    }

    async fn refresh(&self, kept: &Kept, refresh: &str) -> Result<HeaderValue, NoToken> {
        let endpoint = Url::parse(&kept.token_endpoint).map_err(|_| NoToken::Person)?;
        let form = [("grant_type", "refresh_token"), ("refresh_token", refresh), ("resource", kept.resource.as_str())];
        match fetch::token(&self.client, &endpoint, &self.known_now(&kept.client), &form).await {
            Ok(granted) => self.keep(merged(kept, granted)).await,
            Err(error) => {
                tracing::warn!(server = %self.server, %error, "a token was not renewed");
                match error {
                    Trouble::Over { .. } => {
                        // It will never be good again, and sending it again and again looks like an attack.
                        self.forget().await;
                        Err(NoToken::Person)
                    }
                    Trouble::Broken { .. } | Trouble::Refused { .. } => Err(self.later(&error.to_string())),
                }
            }
        }
    }

    /// Who we are to the authorization server today: a secret of the configuration may have been replaced since.
    fn known_now(&self, client: &Registered) -> Registered {
        let is_configured = self.settings.client_id.as_ref() == Some(&client.id) && client.method != Method::None;
        match self.secret() {
            Ok(Some(secret)) if is_configured => Registered { secret: Some(secret), ..client.clone() },
            Ok(_) | Err(_) => client.clone(),
        }
    }

    /// A token for the secret alone.
    pub(super) async fn ask_as_client(
        self: &Arc<Account>,
        used: Option<&str>,
        challenge: &Challenge,
    ) -> Result<HeaderValue, NoToken> {
        let turn = self.turn().await?;
        if let Some(kept) = self.kept().filter(|kept| Some(kept.access.as_str()) != used) {
            return http::bearer(&kept.access).ok_or_else(unfit);
        }
        self.may_ask()?;
        let (account, challenge) = (Arc::clone(self), challenge.clone());
        let exchange = async move {
            match account.by_secret(&challenge).await {
                Ok(kept) => account.keep(kept).await,
                Err(why) => Err(account.later(&why)),
            }
        };
        Account::alone(turn, exchange).await?
    }

    async fn by_secret(&self, challenge: &Challenge) -> Result<Kept, String> {
        let secret = self.secret()?;
        let id = self.settings.client_id.clone().ok_or("oauth names no client-id")?;
        let (resource, issuer, offered) = self.discover(challenge).await.map_err(|error| error.to_string())?;
        let client = fetch::known(&id, secret, Method::Basic, &issuer.methods);
        let had = self.kept().filter(|kept| kept.issuer == issuer.issuer).map(|kept| kept.scopes).unwrap_or_default();
        let scopes = self.scopes(&had, challenge, offered.as_deref());
        let joined = scopes.join(" ");
        let mut form = vec![("grant_type", "client_credentials"), ("resource", resource.as_str())];
        if !scopes.is_empty() {
            form.push(("scope", joined.as_str()));
        }
        let granted =
            fetch::token(&self.client, &issuer.token, &client, &form).await.map_err(|error| error.to_string())?;
        Ok(kept(self.url.as_str(), resource, &issuer, client, granted, scopes))
    }

    pub(super) fn secret(&self) -> Result<Option<String>, String> {
        self.settings.client_secret.as_deref().map(keep::secret).transpose()
    }

    fn may_ask(&self) -> Result<(), NoToken> {
        self.state().pause.holds(Instant::now()).map_or(Ok(()), |why| Err(NoToken::Later(why)))
    }

    fn later(&self, why: &str) -> NoToken {
        self.state().pause.begin(why, Instant::now());
        NoToken::Later(why.to_owned())
    }

    /// Keeps tokens; what a request carries from now on.
    pub(super) async fn keep(&self, kept: Kept) -> Result<HeaderValue, NoToken> {
        let bearer = http::bearer(&kept.access).ok_or_else(unfit)?;
        {
            let mut state = self.state();
            state.renew_from = kept.until.map(|until| renewed_from(clock::wall().0, until));
            state.kept = Some(kept.clone());
            state.pause = Pause::default();
        }
        let file = self.settings.file.clone();
        let written = spawn_blocking(move || kept.write(&file)).await;
        if let Err(error) = written.unwrap_or_else(|broken| Err(std::io::Error::other(broken))) {
            // They are good until we stop; the next life has to ask again.
            tracing::error!(server = %self.server, file = %self.settings.file.display(), %error, "tokens were not kept");
        }
        Ok(bearer)
    }

    async fn forget(&self) {
        self.state().kept = None;
        let file = self.settings.file.clone();
        let removed = spawn_blocking(move || Kept::remove(&file)).await;
        if let Err(error) = removed.unwrap_or_else(|broken| Err(std::io::Error::other(broken))) {
            tracing::error!(server = %self.server, %error, "tokens that are no good were not removed");
        }
    }
}

/// One, at a time.
pub(super) fn one() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(1))
}

fn stopping() -> NoToken {
    NoToken::Later("it is being stopped".to_owned())
}

fn unfit() -> NoToken {
    NoToken::Later("its token fits no header".to_owned())
}

fn merged(old: &Kept, granted: Granted) -> Kept {
    let Granted { access, refresh, until, scopes } = granted;
    Kept {
        access,
        // A server that gives no new one lets the old one live.
        refresh: refresh.or_else(|| old.refresh.clone()),
        until,
        scopes: scopes.unwrap_or_else(|| old.scopes.clone()),
        ..old.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_exchange_is_not_repeated_at_once() {
        let start = Instant::now();
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        let mut pause = Pause::default();
        assert_eq!(pause.holds(start), None);
        pause.begin("no answer in time", start);
        assert_eq!(pause.holds(start).as_deref(), Some("no answer in time; it is asked again in 11 s"));
        assert_eq!(pause.holds(after(9)).as_deref(), Some("no answer in time; it is asked again in 2 s"));
        assert_eq!(pause.holds(after(10)), None);
        pause.begin("503", after(10));
        assert!(pause.holds(after(29)).is_some());
        assert_eq!(pause.holds(after(30)), None);
        for _ in 0..100 {
            pause.begin("503", start);
        }
        assert!(pause.holds(after(299)).is_some());
        assert_eq!(pause.holds(after(300)), None, "the longest");
    }

    #[test]
    fn a_short_life_is_not_renewed_from_its_first_moment() {
        for (now, until, from) in
            [(0, 3_600_000, 3_570_000), (0, 120_000, 90_000), (0, 20_000, 15_000), (0, 0, 0), (9, 5, 5)]
        {
            assert_eq!(renewed_from(now, until), from, "{now} {until}");
        }
    }
}
