//! A person's login, once for each server: an address for a browser goes out, and what the browser ends at comes back
//! (authorization code with PKCE, RFC 6749 section 4.1, RFC 7636, RFC 8252, RFC 8707, RFC 9207).

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Url;
use sha2::{Digest as _, Sha256};
use thiserror::Error;
use tokio::time::Instant;

use super::fetch::{self, Trouble};
use super::kept::Registered;
use super::metadata::{self, Issuer, Method, shown};
use super::{Account, Grant, kept};

/// How long a person may take.
const PATIENCE: Duration = Duration::from_secs(15 * 60);

/// Random bytes of a code verifier (RFC 7636 section 4.1 asks for 32) and of a state.
const RANDOM_LEN: usize = 32;

/// Longest answer of a browser that is read.
const ANSWER_LEN_MAX: usize = 16 << 10;

/// What lets an authorization server give a refresh token, where it knows the word (OpenID Connect Core, section 11).
const OFFLINE: &str = "offline_access";

/// Why nobody is logged in.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotLoggedIn {
    /// The server is not one that logins are for.
    #[error("{server} has no login: its configuration says nothing of oauth, or that the client's secret is enough")]
    NoLogin {
        /// The server.
        server: String,
    },
    /// What somebody publishes cannot be used.
    #[error("{what}: {fact}")]
    Unfit {
        /// What it is.
        what: String,
        /// Why not.
        fact: String,
    },
    /// The authorization server was not reached, or says no.
    #[error(transparent)]
    Server(#[from] Trouble),
    /// No login is under way, or it took too long.
    #[error("no login is under way for {server}, or it took longer than {} minutes", PATIENCE.as_secs() / 60)]
    NotBegun {
        /// The server.
        server: String,
    },
    /// What the browser brought back is not the answer to this login.
    #[error("this is not the answer to this login: {fact}")]
    NotTheAnswer {
        /// What is missing or different.
        fact: &'static str,
    },
    /// The person, or the authorization server in their name, said no.
    #[error("the login was refused: {error}")]
    Denied {
        /// The server's word for why.
        error: String,
    },
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandom,
    /// The daemon is being stopped.
    #[error("the daemon is being stopped")]
    Stopping,
}

impl NotLoggedIn {
    pub(super) fn unfit(what: &str, fact: &str) -> NotLoggedIn {
        NotLoggedIn::Unfit { what: shown(what), fact: fact.to_owned() }
    }
}

/// A login that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Begun {
    /// The address that a person opens.
    pub url: String,
    /// What the answer to this login, and to no other, says of itself.
    pub state: String,
    /// How long it is waited for.
    pub patience: Duration,
}

/// A login that waits for its browser.
pub(super) struct Login {
    state: String,
    verifier: String,
    redirect: String,
    resource: String,
    issuer: Issuer,
    client: Registered,
    scopes: Vec<String>,
    until: Instant,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Login").field("issuer", &self.issuer.issuer).finish_non_exhaustive()
    }
}

impl Account {
    /// Begins a login. `redirect` is where the person's browser is sent afterwards.
    pub(in crate::tool::mcp) async fn begin(&self, redirect: &str) -> Result<Begun, NotLoggedIn> {
        if self.settings.grant == Grant::Client {
            return Err(NotLoggedIn::NoLogin { server: self.server.clone() });
        }
        let here = Url::parse(redirect).ok().filter(|url| url.scheme() == "http" && metadata::is_loopback(url));
        here.ok_or_else(|| NotLoggedIn::unfit(redirect, "a login ends on this machine (http://127.0.0.1:PORT/…)"))?;
        let challenge = self.state().challenge.clone();
        let (resource, issuer, offered) = self.discover(&challenge).await?;
        let client = self.known_as(&issuer, redirect).await?;
        let had = self.kept().filter(|kept| kept.issuer == issuer.issuer).map(|kept| kept.scopes).unwrap_or_default();
        let mut scopes = self.scopes(&had, &challenge, offered.as_deref());
        if issuer.scopes.iter().any(|scope| scope == OFFLINE) {
            scopes = metadata::together(&scopes, [OFFLINE]);
        }
        let (verifier, state) = (random()?, random()?);
        let mut address = issuer.authorize.clone();
        let joined = scopes.join(" ");
        {
            let mut query = address.query_pairs_mut();
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", &client.id)
                .append_pair("redirect_uri", redirect)
                .append_pair("code_challenge", &challenge_of(&verifier))
                .append_pair("code_challenge_method", "S256")
                .append_pair("state", &state)
                .append_pair("resource", &resource);
            if !joined.is_empty() {
                query.append_pair("scope", &joined);
            }
            if scopes.iter().any(|scope| scope == OFFLINE) {
                // OpenID Connect Core, section 11: without it no refresh token is given.
                query.append_pair("prompt", "consent");
            }
        }
        let until = Instant::now() + PATIENCE;
        let redirect = redirect.to_owned();
        let begun = Begun { url: address.into(), state: state.clone(), patience: PATIENCE };
        self.state().login = Some(Login { state, verifier, redirect, resource, issuer, client, scopes, until });
        Ok(begun)
    }

    /// Who we are to that authorization server. What one of them gave is never shown to another.
    async fn known_as(&self, issuer: &Issuer, redirect: &str) -> Result<Registered, NotLoggedIn> {
        if let Some(id) = &self.settings.client_id {
            let secret = self.secret().map_err(|fact| NotLoggedIn::unfit("the client's secret", &fact))?;
            return Ok(fetch::known(id, secret, Method::Basic, &issuer.methods));
        }
        let Some(register) = &issuer.register else {
            return Err(NotLoggedIn::unfit(&issuer.issuer, "it registers nobody; oauth needs a client-id"));
        };
        Ok(fetch::register(&self.client, register, issuer, redirect).await?)
    }

    /// Ends a login with what the browser was sent to: its address, or what stands behind the question mark.
    pub(in crate::tool::mcp) async fn finish(self: &Arc<Account>, answer: &str) -> Result<(), NotLoggedIn> {
        let not_begun = || NotLoggedIn::NotBegun { server: self.server.clone() };
        let stopping = |_| NotLoggedIn::Stopping;
        let said = Said::read(answer)?;
        let turn = self.turn().await.map_err(stopping)?;
        let login = {
            let mut state = self.state();
            let login = state.login.as_ref().filter(|login| Instant::now() < login.until).ok_or_else(not_begun)?;
            // Another's answer does not end this login.
            if said.state.as_deref() != Some(login.state.as_str()) {
                return Err(NotLoggedIn::NotTheAnswer { fact: "its state is another" });
            }
            state.login.take().ok_or_else(not_begun)?
        };
        match &said.issuer {
            // Byte for byte (RFC 9207, section 2.4): two names that mean the same may be two servers.
            Some(issuer) if *issuer != login.issuer.issuer => {
                return Err(NotLoggedIn::NotTheAnswer { fact: "it comes from another authorization server" });
            }
            None if login.issuer.names_itself => {
                return Err(NotLoggedIn::NotTheAnswer {
                    fact: "it does not say which authorization server it comes from",
                });
            }
            Some(_) | None => {}
        }
        if let Some(error) = said.error {
            return Err(NotLoggedIn::Denied { error: shown(&error) });
        }
        let code = said.code.ok_or(NotLoggedIn::NotTheAnswer { fact: "it brings no code" })?;
        let account = Arc::clone(self);
        Account::alone(turn, async move { account.exchange(login, &code).await }).await.map_err(stopping)?
    }

    /// A code is good once: what it gave is kept, whoever waits for that.
    async fn exchange(&self, login: Login, code: &str) -> Result<(), NotLoggedIn> {
        let form = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", login.redirect.as_str()),
            ("code_verifier", login.verifier.as_str()),
            ("resource", login.resource.as_str()),
        ];
        let granted = fetch::token(&self.client, &login.issuer.token, &login.client, &form).await?;
        let Login { resource, issuer, client, scopes, .. } = login;
        let kept = kept(self.url.as_str(), resource, &issuer, client, granted, scopes);
        self.keep(kept).await.map_err(|_| NotLoggedIn::unfit(&issuer.issuer, "its token fits no header"))?;
        self.changed.send_modify(|count| *count += 1);
        Ok(())
    }
}

/// What a browser brings back.
#[derive(Debug, Default, PartialEq, Eq)]
struct Said {
    code: Option<String>,
    state: Option<String>,
    issuer: Option<String>,
    error: Option<String>,
}

impl Said {
    /// From an address, or from its query alone. A parameter that stands there twice makes it nobody's answer.
    fn read(answer: &str) -> Result<Said, NotLoggedIn> {
        let bad = |fact| NotLoggedIn::NotTheAnswer { fact };
        let answer = answer.trim();
        if answer.len() > ANSWER_LEN_MAX {
            return Err(bad("it is too long"));
        }
        let is_address = answer.starts_with("http://") || answer.starts_with("https://");
        let address = if is_address { answer.to_owned() } else { format!("http://here/?{answer}") };
        let address = Url::parse(&address).map_err(|_| bad("it is no address"))?;
        let mut said = Said::default();
        for (name, value) in address.query_pairs() {
            let place = match &*name {
                "code" => &mut said.code,
                "state" => &mut said.state,
                "iss" => &mut said.issuer,
                "error" => &mut said.error,
                _ => continue,
            };
            if place.replace(value.into_owned()).is_some() {
                return Err(bad("it says one thing twice"));
            }
        }
        Ok(said)
    }
}

fn random() -> Result<String, NotLoggedIn> {
    let mut bytes = [0; RANDOM_LEN];
    getrandom::fill(&mut bytes).map_err(|_| NotLoggedIn::NoRandom)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

fn challenge_of(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_the_one_of_the_rfc() {
        // RFC 7636, appendix B.
        let verifier = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
        assert_eq!(challenge_of(verifier), "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        let (one, other) = (random().unwrap(), random().unwrap());
        assert!(one.len() >= 43 && one != other, "{one} {other}");
    }

    #[test]
    fn an_answer_is_an_address_or_its_query() {
        let said = |answer: &str| Said::read(answer).map(|said| (said.code, said.state, said.issuer, said.error));
        let whole = Ok((Some("c d".to_owned()), Some("s".to_owned()), Some("https://as".to_owned()), None));
        assert_eq!(said("http://127.0.0.1:1/callback?code=c+d&state=s&iss=https%3A%2F%2Fas"), whole);
        assert_eq!(said(" code=c%20d&state=s&iss=https://as&more=1\n"), whole, "as pasted");
        assert_eq!(
            said("error=access_denied&state=s"),
            Ok((None, Some("s".into()), None, Some("access_denied".into())))
        );
        assert_eq!(said(""), Ok((None, None, None, None)));
        for bad in ["state=a&state=a", "code=1&code=2", "http://[", &"x".repeat(ANSWER_LEN_MAX + 1)] {
            assert!(said(bad).is_err(), "{bad:.40}");
        }
    }
}
