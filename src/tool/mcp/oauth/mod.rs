//! The account that we have at a server which wants OAuth (MCP 2025-11-25 and 2026-07-28, "Authorization").
//!
//! A person logs in once, with a browser somewhere; from then on the tokens renew themselves. A machine with a secret of
//! its own needs no person. Nothing here asks anybody by itself: what needs a person says so, and waits. A token goes to
//! the server that it was given for and to nobody else, and is written nowhere but in its file.

mod fetch;
mod kept;
mod login;
mod metadata;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::header::HeaderValue;
use reqwest::{Client, Response, StatusCode, Url};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use fetch::{Granted, Trouble};
use kept::{Kept, Registered};
use login::Login;
use metadata::{Challenge, Issuer, Method};

pub use login::NotLoggedIn;

use super::keep;
use crate::sys::clock;

/// How long before its end a token is renewed, in milliseconds: a request takes a while to arrive, and clocks differ.
const RENEW_BEFORE_MS: i64 = 30_000;

/// How the configuration wants us to get in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oauth {
    /// Who says yes.
    pub grant: Grant,
    /// The client that an authorization server knows already; without one we make ourselves known.
    pub client_id: Option<String>,
    /// The file of its secret.
    pub client_secret: Option<PathBuf>,
    /// What is asked for, where the server does not say.
    pub scopes: Vec<String>,
    /// Where tokens are kept.
    pub file: PathBuf,
}

/// Who says yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grant {
    /// A person, once.
    Person,
    /// The secret alone (RFC 6749, section 4.4).
    Client,
}

/// What a refusal by the server means.
pub(super) enum Verdict {
    /// It was none.
    Passed,
    /// The request is sent again with this: it was not carried out.
    Again(HeaderValue),
    /// It needs a person, or another configuration; which and why.
    Refused(String),
}

/// The account at one server.
#[derive(Debug)]
pub(super) struct Account {
    server: String,
    url: Url,
    settings: Oauth,
    client: Client,
    // Read for each request, written when tokens change.
    state: Mutex<State>,
    /// Tokens are renewed by one at a time: an authorization server takes a second use of a refresh token for a theft.
    renewing: Semaphore,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    kept: Option<Kept>,
    /// What the server said when it last refused.
    challenge: Challenge,
    login: Option<Login>,
}

impl Account {
    /// The account, with the tokens that an earlier life left.
    pub(super) fn new(server: &str, url: &str, settings: Oauth, client: Client) -> Result<Arc<Account>, String> {
        let url = Url::parse(url).map_err(|_| "its address is none".to_owned())?;
        let kept = Kept::read(&settings.file, url.as_str()).unwrap_or_else(|error| {
            tracing::error!(server, file = %settings.file.display(), %error, "the tokens of a server are not readable");
            None
        });
        Ok(Arc::new(Account {
            server: server.to_owned(),
            url,
            settings,
            client,
            state: Mutex::new(State { kept, ..State::default() }),
            renewing: Semaphore::new(1),
            changed: watch::Sender::new(0),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rises with each login.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn kept(&self) -> Option<Kept> {
        self.state().kept.clone()
    }

    /// What a request carries; none where there is no token yet.
    pub(super) async fn bearer(&self) -> Option<HeaderValue> {
        let kept = self.kept()?;
        let is_ending = kept.until.is_some_and(|until| clock::wall().0 >= until - RENEW_BEFORE_MS);
        if is_ending && kept.refresh.is_some() {
            // Where that goes wrong, the server says what it thinks of the old one.
            return self.renew(&kept.access).await.or_else(|_| header(&kept.access).ok_or(())).ok();
        }
        header(&kept.access)
    }

    /// What a response means for us: `used` is what its request carried.
    pub(super) async fn heed(&self, response: &Response, used: Option<&HeaderValue>) -> Verdict {
        let Some(challenge) = self.challenged(response) else { return Verdict::Passed };
        let lacks_scope = challenge.lacks_scope();
        let used = used.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer ")).map(str::to_owned);
        let renewed = match (self.settings.grant, lacks_scope, &used) {
            (Grant::Client, _, _) => self.ask_as_client(used.as_deref(), &challenge).await,
            (Grant::Person, false, Some(used)) => self.renew(used).await.map_err(|()| self.wants_login(&challenge)),
            (Grant::Person, _, _) => Err(self.wants_login(&challenge)),
        };
        match renewed {
            Ok(bearer) => Verdict::Again(bearer),
            Err(why) => Verdict::Refused(why),
        }
    }

    /// The challenge of a response that does not let us in.
    fn challenged(&self, response: &Response) -> Option<Challenge> {
        let challenge = Challenge::read(response.headers());
        let is_refused = match response.status() {
            StatusCode::UNAUTHORIZED => true,
            StatusCode::FORBIDDEN => challenge.lacks_scope(),
            _ => false,
        };
        if is_refused {
            self.state().challenge = challenge.clone();
        }
        is_refused.then_some(challenge)
    }

    /// Why a request is refused that carried a token which has just been given.
    pub(super) fn refused_again(&self, response: &Response) -> Option<String> {
        self.challenged(response).map(|challenge| match self.settings.grant {
            Grant::Person => self.wants_login(&challenge),
            Grant::Client => "it does not take the token that its authorization server gives us".to_owned(),
        })
    }

    fn wants_login(&self, challenge: &Challenge) -> String {
        let why = match &challenge.scopes {
            Some(scopes) if challenge.lacks_scope() => {
                format!("it wants a login that covers {}", metadata::shown(&scopes.join(" ")))
            }
            Some(_) | None => "it wants a login".to_owned(),
        };
        format!("{why}: interlock mcp login {}", self.server)
    }

    /// Another token in place of `used`, by the refresh token; one that somebody else has had meanwhile counts too.
    async fn renew(&self, used: &str) -> Result<HeaderValue, ()> {
        let Ok(_one) = self.renewing.acquire().await else { return Err(()) };
        let kept = self.kept().ok_or(())?;
        if kept.access != used {
            return header(&kept.access).ok_or(());
        }
        let refresh = kept.refresh.clone().ok_or(())?;
        let endpoint = Url::parse(&kept.token_endpoint).map_err(drop)?;
        let form = [
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.as_str()),
            ("resource", kept.resource.as_str()),
        ];
        match fetch::token(&self.client, &endpoint, &kept.client, &form).await {
            Ok(granted) => self.keep(merged(&kept, granted)).ok_or(()),
            Err(error) => {
                tracing::warn!(server = %self.server, %error, "a token was not renewed");
                if let Trouble::Refused { .. } = error {
                    // It will never be good again, and sending it again and again looks like an attack.
                    self.state().kept = None;
                    if let Err(error) = Kept::remove(&self.settings.file) {
                        tracing::error!(server = %self.server, %error, "tokens that are no good were not removed");
                    }
                }
                Err(())
            }
        }
    }

    /// A token for the secret alone.
    async fn ask_as_client(&self, used: Option<&str>, challenge: &Challenge) -> Result<HeaderValue, String> {
        let Ok(_one) = self.renewing.acquire().await else { return Err("it is being stopped".to_owned()) };
        let had = self.kept();
        if let Some(kept) = had.as_ref().filter(|kept| Some(kept.access.as_str()) != used) {
            return header(&kept.access).ok_or_else(|| "its token fits no header".to_owned());
        }
        let secret = self.secret()?;
        let id = self.settings.client_id.clone().ok_or("oauth names no client-id")?;
        let (resource, issuer, offered) = self.discover(challenge).await.map_err(|error| error.to_string())?;
        let client = fetch::known(&id, secret, Method::Basic, &issuer.methods);
        let had = had.filter(|kept| kept.issuer == issuer.issuer).map(|kept| kept.scopes).unwrap_or_default();
        let scopes = self.scopes(&had, challenge, offered.as_deref());
        let joined = scopes.join(" ");
        let mut form = vec![("grant_type", "client_credentials"), ("resource", resource.as_str())];
        if !scopes.is_empty() {
            form.push(("scope", joined.as_str()));
        }
        let granted =
            fetch::token(&self.client, &issuer.token, &client, &form).await.map_err(|error| error.to_string())?;
        let kept = kept(self.url.as_str(), resource, &issuer, client, granted, scopes);
        self.keep(kept).ok_or_else(|| "its token fits no header".to_owned())
    }

    fn secret(&self) -> Result<Option<String>, String> {
        self.settings.client_secret.as_deref().map(keep::secret).transpose()
    }

    /// What is asked for: what was had and what the refusal names, else what the configuration or the resource says.
    fn scopes(&self, had: &[String], challenge: &Challenge, offered: Option<&[String]>) -> Vec<String> {
        let wanted = match (&challenge.scopes, self.settings.scopes.as_slice(), offered) {
            (Some(challenged), own, _) => metadata::together(own, challenged.iter().map(String::as_str)),
            (None, own @ [_, ..], _) => own.to_vec(),
            (None, [], offered) => offered.unwrap_or_default().to_vec(),
        };
        metadata::together(had, wanted.iter().map(String::as_str))
    }

    /// Keeps tokens; what a request carries from now on.
    fn keep(&self, kept: Kept) -> Option<HeaderValue> {
        if let Err(error) = kept.write(&self.settings.file) {
            // They are good until we stop; the next life has to ask again.
            tracing::error!(server = %self.server, file = %self.settings.file.display(), %error, "tokens were not kept");
        }
        let bearer = header(&kept.access);
        self.state().kept = Some(kept);
        bearer
    }

    /// Who gives tokens for this server, what they have to be for, and what they may cover.
    async fn discover(&self, challenge: &Challenge) -> Result<(String, Issuer, Option<Vec<String>>), NotLoggedIn> {
        let mut places: Vec<Url> = Vec::new();
        if let Some(told) = &challenge.resource_metadata {
            let place = Url::parse(told).ok().filter(|place| metadata::is_safe(place, &self.url));
            places.push(
                place.ok_or_else(|| NotLoggedIn::unfit("the metadata of the resource", "not reached over https"))?,
            );
        }
        places.extend(metadata::resource_places(&self.url));
        let document = self.first(&places).await?;
        let Some((place, document)) = document else {
            // MCP 2025-03-26: the server is its own authorization server.
            let origin = self.url.origin().ascii_serialization();
            let issuer = self.issuer(&origin).await?.unwrap_or_else(|| metadata::assumed(&self.url));
            return Ok((self.url.to_string(), issuer, None));
        };
        let resource =
            metadata::resource(&document, &self.url).map_err(|fact| NotLoggedIn::unfit(place.as_str(), &fact))?;
        let issuer = self.issuer(&resource.issuer).await?;
        let issuer = issuer.ok_or_else(|| NotLoggedIn::unfit(&resource.issuer, "it publishes no metadata"))?;
        Ok((resource.resource, issuer, resource.scopes))
    }

    async fn issuer(&self, name: &str) -> Result<Option<Issuer>, NotLoggedIn> {
        let url = Url::parse(name).ok().filter(|url| metadata::is_safe(url, &self.url));
        let url = url.ok_or_else(|| NotLoggedIn::unfit(name, "an authorization server is reached over https"))?;
        match self.first(&metadata::issuer_places(&url)).await? {
            None => Ok(None),
            Some((place, document)) => metadata::issuer(&document, name, &self.url)
                .map(Some)
                .map_err(|fact| NotLoggedIn::unfit(place.as_str(), &fact)),
        }
    }

    async fn first(&self, places: &[Url]) -> Result<Option<(Url, Value)>, NotLoggedIn> {
        for place in places {
            if let Some(document) = fetch::document(&self.client, place).await? {
                return Ok(Some((place.clone(), document)));
            }
        }
        Ok(None)
    }
}

fn header(token: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    value.set_sensitive(true);
    Some(value)
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

fn kept(
    url: &str,
    resource: String,
    issuer: &Issuer,
    client: Registered,
    granted: Granted,
    asked: Vec<String>,
) -> Kept {
    let Granted { access, refresh, until, scopes } = granted;
    Kept {
        url: url.to_owned(),
        resource,
        issuer: issuer.issuer.clone(),
        token_endpoint: issuer.token.to_string(),
        client,
        access,
        refresh,
        until,
        scopes: scopes.unwrap_or(asked),
    }
}
