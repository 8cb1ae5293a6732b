//! What is kept of an account between two starts: `<state>/keys/mcp/<server>.json`, readable by the service alone.
//!
//! The folder lies below `keys`, which no mediated call may read. A secret has no written form but this file: nothing
//! in here prints one.

use std::fmt;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde_json::{Value, json};

use super::metadata::Method;

/// Nobody but the service reads it.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// The longest file that is read: tokens are a few kilobytes.
const FILE_LEN_MAX: u64 = 256 << 10;

/// Which client an authorization server knows us as.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Registered {
    pub(super) id: String,
    pub(super) secret: Option<String>,
    pub(super) method: Method,
}

impl fmt::Debug for Registered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registered").field("id", &self.id).field("method", &self.method).finish_non_exhaustive()
    }
}

/// The tokens for one server, with all that it takes to have new ones. Bound to the server and to the authorization
/// server that gave them: elsewhere they are nobody's.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Kept {
    /// The server's address.
    pub(super) url: String,
    /// What the tokens are for.
    pub(super) resource: String,
    /// Who gave them.
    pub(super) issuer: String,
    /// Where new ones are given.
    pub(super) token_endpoint: String,
    /// To whom they were given.
    pub(super) client: Registered,
    /// What opens the server.
    pub(super) access: String,
    /// What gives a new one.
    pub(super) refresh: Option<String>,
    /// Until when the first is good, in milliseconds since 1970.
    pub(super) until: Option<i64>,
    /// What it covers.
    pub(super) scopes: Vec<String>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").field("issuer", &self.issuer).field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

impl Kept {
    /// Reads what is kept for that server. A file of another address counts as none.
    pub(super) fn read(file: &Path, url: &str) -> io::Result<Option<Kept>> {
        let opened = match fs::File::open(file) {
            Ok(opened) => opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut text = String::new();
        opened.take(FILE_LEN_MAX).read_to_string(&mut text)?;
        let bad = || io::Error::new(io::ErrorKind::InvalidData, "it is not what this program writes");
        let value: Value = serde_json::from_str(&text).map_err(|_| bad())?;
        let kept = of_json(&value).ok_or_else(bad)?;
        Ok((kept.url == url).then_some(kept))
    }

    /// Writes it whole, or leaves the old one.
    pub(super) fn write(&self, file: &Path) -> io::Result<()> {
        let directory = file.parent().ok_or(io::ErrorKind::InvalidInput)?;
        DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
        let beside = file.with_extension("new");
        // One that a crash left behind may have another mode.
        if let Err(error) = fs::remove_file(&beside)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        let mut written = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&beside)?;
        written.write_all(self.to_json().to_string().as_bytes())?;
        written.sync_all()?;
        fs::rename(&beside, file)?;
        fs::File::open(directory)?.sync_all()
    }

    /// Forgets it.
    pub(super) fn remove(file: &Path) -> io::Result<()> {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn to_json(&self) -> Value {
        json!({
            "version": 1,
            "url": self.url,
            "resource": self.resource,
            "issuer": self.issuer,
            "token_endpoint": self.token_endpoint,
            "client_id": self.client.id,
            "client_secret": self.client.secret,
            "client_method": self.client.method.as_str(),
            "access_token": self.access,
            "refresh_token": self.refresh,
            "until_ms": self.until,
            "scopes": self.scopes,
        })
    }
}

fn of_json(value: &Value) -> Option<Kept> {
    if value["version"] != 1 {
        return None;
    }
    let text = |member: &str| value[member].as_str().map(str::to_owned);
    Some(Kept {
        url: text("url")?,
        resource: text("resource")?,
        issuer: text("issuer")?,
        token_endpoint: text("token_endpoint")?,
        client: Registered {
            id: text("client_id")?,
            secret: text("client_secret"),
            method: Method::read(value["client_method"].as_str()?)?,
        },
        access: text("access_token")?,
        refresh: text("refresh_token"),
        until: value["until_ms"].as_i64(),
        scopes: value["scopes"].as_array()?.iter().filter_map(|scope| scope.as_str().map(str::to_owned)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn tokens_are_kept_for_the_service_alone_and_for_one_address() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("keys/mcp/far.json");
        let kept = Kept {
            url: "https://h/mcp".into(),
            resource: "https://h/mcp".into(),
            issuer: "https://as".into(),
            token_endpoint: "https://as/t".into(),
            client: Registered { id: "c".into(), secret: Some("client-s3cret".into()), method: Method::Post },
            access: "access-s3cret".into(),
            refresh: Some("refresh-s3cret".into()),
            until: Some(5),
            scopes: vec!["a".into()],
        };
        assert_eq!(Kept::read(&file, "https://h/mcp").unwrap(), None);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file.with_extension("new"), "torn").unwrap();
        kept.write(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(Kept::read(&file, "https://h/mcp").unwrap().as_ref(), Some(&kept));
        assert_eq!(Kept::read(&file, "https://other/mcp").unwrap(), None, "another server's tokens are not sent");
        assert!(!format!("{kept:?}").contains("s3cret"), "{kept:?}");
        fs::write(&file, "{").unwrap();
        assert!(Kept::read(&file, "https://h/mcp").is_err());
        Kept::remove(&file).unwrap();
        Kept::remove(&file).unwrap();
    }
}
