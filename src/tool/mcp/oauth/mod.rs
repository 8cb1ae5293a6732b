//! The account that we have at a server which wants OAuth (MCP 2025-11-25 and 2026-07-28, "Authorization").
//!
//! A person logs in once, with a browser somewhere; from then on the tokens renew themselves. A machine with a secret of
//! its own needs no person. Nothing here asks anybody by itself: what needs a person says so, and waits. A token goes to
//! the server that it was given for and to nobody else, and is written nowhere but in its file.

mod fetch;
mod kept;
mod login;
mod metadata;
mod renew;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::header::HeaderValue;
use reqwest::{Client, Response, StatusCode, Url};
use serde_json::Value;
use tokio::sync::{Semaphore, watch};

use fetch::Granted;
use kept::{Kept, Registered};
use login::Login;
use metadata::{Challenge, Issuer};
use renew::{NoToken, Pause};

pub use login::{Begun, NotLoggedIn};

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
    /// Held by whoever asks for tokens.
    exchanging: Arc<Semaphore>,
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    kept: Option<Kept>,
    /// From when on they are renewed, in milliseconds since 1970; not known of those that an earlier life left.
    renew_from: Option<i64>,
    pause: Pause,
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
            exchanging: renew::one(),
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

    /// What a response means for us: `used` is what its request carried.
    pub(super) async fn heed(self: &Arc<Account>, response: &Response, used: Option<&HeaderValue>) -> Verdict {
        let Some(challenge) = self.challenged(response) else { return Verdict::Passed };
        let lacks_scope = challenge.lacks_scope();
        let used = used.and_then(|value| value.to_str().ok()?.strip_prefix("Bearer ")).map(str::to_owned);
        let renewed = match (self.settings.grant, lacks_scope, &used) {
            (Grant::Client, _, _) => self.ask_as_client(used.as_deref(), &challenge).await,
            (Grant::Person, false, Some(used)) => self.renew(used).await,
            (Grant::Person, _, _) => Err(NoToken::Person),
        };
        match (renewed, self.settings.grant) {
            (Ok(bearer), _) => Verdict::Again(bearer),
            (Err(NoToken::Person), _) => Verdict::Refused(self.wants_login(&challenge)),
            (Err(NoToken::Later(why)), Grant::Client) => Verdict::Refused(why),
            (Err(NoToken::Later(why)), Grant::Person) => {
                let way_out = format!("if that lasts: interlock mcp login {}", self.server);
                Verdict::Refused(format!("its token was not renewed: {why}; {way_out}"))
            }
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

    /// What is asked for: what was had and what the refusal names, else what the configuration or the resource says.
    fn scopes(&self, had: &[String], challenge: &Challenge, offered: Option<&[String]>) -> Vec<String> {
        let wanted = match (&challenge.scopes, self.settings.scopes.as_slice(), offered) {
            (Some(challenged), own, _) => metadata::together(own, challenged.iter().map(String::as_str)),
            (None, own @ [_, ..], _) => own.to_vec(),
            (None, [], offered) => offered.unwrap_or_default().to_vec(),
        };
        metadata::together(had, wanted.iter().map(String::as_str))
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
