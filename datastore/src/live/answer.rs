//! What an answer of the API server means for the row that was asked about (wire-format.md 2.9, "Ours"; D-75).
//!
//! A definite error promises that nothing was written. Everything else that a write comes back with is an unknown outcome.

use std::time::Duration;

use http::StatusCode;
use ipam::StoreError;
use serde::Deserialize;

/// What came back, or why nothing did.
#[derive(Clone, Debug)]
pub enum Answer {
    /// An answer of the server.
    Http(StatusCode, Vec<u8>),
    /// The server wants to be asked again, after so long.
    Later(StatusCode, Duration),
    /// No answer: the connection failed, or it took too long.
    Nothing(String),
}

/// The `Status` object of an error.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    kind: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    details: Option<Details>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Details {
    name: Option<String>,
}

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// One object by name.
    Get,
    /// Many objects.
    List,
    /// A new object.
    Create,
    /// A changed object.
    Update,
    /// One object less.
    Delete,
}

impl Purpose {
    fn writes(self) -> bool {
        matches!(self, Self::Create | Self::Update | Self::Delete)
    }
}

impl Answer {
    fn status(body: &[u8]) -> Status {
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// The body of a success, or what the error means.
    pub(super) fn understood(self, purpose: Purpose, kind: &'static str) -> Result<Vec<u8>, StoreError> {
        let (code, body) = match self {
            Answer::Http(code, body) => (code, body),
            Answer::Later(code, pause) => {
                return Err(StoreError::Unavailable(format!("{}: again in {} s", code.as_u16(), pause.as_secs())));
            }
            Answer::Nothing(why) => return Err(StoreError::Unavailable(why)),
        };
        if code.is_success() {
            return Ok(body);
        }
        let status = Self::status(&body);
        let message = status.message.unwrap_or_else(|| String::from_utf8_lossy(&body).chars().take(200).collect());
        let said = format!("{}: {message}", code.as_u16());
        let uid = message.contains("UID in precondition") || message.contains("UID in the precondition");
        Err(match code.as_u16() {
            404 if status.reason.as_deref() == Some("NotFound") && status.details.is_some_and(|d| d.name.is_some()) => StoreError::Absent,
            404 => StoreError::NotServed(kind),
            409 if status.reason.as_deref() == Some("AlreadyExists") => StoreError::Exists,
            409 if uid => StoreError::Absent,
            409 => StoreError::Conflict,
            400 | 403 | 405 | 413 | 415 | 422 => StoreError::Refused(said),
            401 if !purpose.writes() => StoreError::Refused(said),
            410 if !purpose.writes() => StoreError::Conflict,
            _ => StoreError::Unavailable(said),
        })
    }

    /// Whether a reading may be tried again.
    pub(super) fn passing(&self) -> bool {
        match self {
            Answer::Nothing(_) | Answer::Later(..) => true,
            Answer::Http(code, _) => *code == StatusCode::TOO_MANY_REQUESTS || code.is_server_error(),
        }
    }

    /// Its status; `None`: there was no answer.
    pub(super) fn code(&self) -> Option<StatusCode> {
        match self {
            Answer::Http(code, _) | Answer::Later(code, _) => Some(*code),
            Answer::Nothing(_) => None,
        }
    }

    /// How long the server wants to be left alone.
    pub(super) fn pause(&self) -> Option<Duration> {
        if let Answer::Later(_, pause) = self { Some(*pause) } else { None }
    }

    /// An answer from its status, its `Retry-After` and its body.
    pub(super) fn of(code: StatusCode, retry_after: Option<&str>, body: Vec<u8>) -> Self {
        let busy = code == StatusCode::TOO_MANY_REQUESTS || code == StatusCode::SERVICE_UNAVAILABLE;
        match retry_after.and_then(|text| text.parse().ok()).filter(|_| busy) {
            Some(seconds) => Self::Later(code, Duration::from_secs(seconds)),
            None => Self::Http(code, body),
        }
    }

    /// Whether the credentials were not accepted.
    pub(super) fn unauthorized(&self) -> bool {
        matches!(self, Answer::Http(code, _) if *code == StatusCode::UNAUTHORIZED)
    }
}

/// Whether a DELETE did delete: a server that answers with the object has only marked it, for a finalizer holds it.
pub(super) fn deleted(body: &[u8]) -> Result<(), StoreError> {
    match Answer::status(body).kind.as_deref() {
        Some("Status") => Ok(()),
        _ => Err(StoreError::Refused("a finalizer holds the object".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn meaning(code: u16, reason: &str, message: &str, named: bool, purpose: Purpose) -> StoreError {
        let details = if named { json!({"name": "n", "kind": "ipamblocks"}) } else { json!({}) };
        let body = json!({"kind": "Status", "reason": reason, "message": message, "details": details});
        let code = StatusCode::from_u16(code).expect("a code");
        Answer::Http(code, body.to_string().into_bytes()).understood(purpose, "IPAMBlock").expect_err("an error")
    }

    #[test]
    fn d_75_definite_errors_promise_that_nothing_was_written() {
        use Purpose::{Create, Delete, Get, Update};
        assert_eq!(meaning(409, "Conflict", "the object has been modified", true, Update), StoreError::Conflict);
        assert_eq!(
            meaning(409, "Conflict", "the ResourceVersion in the precondition (1) does not match", true, Delete),
            StoreError::Conflict
        );
        assert_eq!(meaning(409, "AlreadyExists", "exists", true, Create), StoreError::Exists);
        assert_eq!(
            meaning(409, "Conflict", "Precondition failed: UID in precondition: a, UID in object meta: b", true, Update),
            StoreError::Absent
        );
        assert_eq!(meaning(409, "Conflict", "the UID in the precondition (a) does not match", true, Delete), StoreError::Absent);
        assert_eq!(meaning(404, "NotFound", "not found", true, Get), StoreError::Absent);
        assert_eq!(
            meaning(404, "NotFound", "the server could not find the requested resource", false, Get),
            StoreError::NotServed("IPAMBlock")
        );
        for code in [400, 403, 405, 413, 415, 422] {
            assert!(matches!(meaning(code, "", "no", true, Update), StoreError::Refused(_)), "{code}");
        }
        assert!(matches!(meaning(401, "Unauthorized", "no", true, Get), StoreError::Refused(_)));
    }

    #[test]
    fn d_80_the_server_says_when_to_ask_again() {
        let of = |code: u16, after| Answer::of(StatusCode::from_u16(code).expect("a code"), after, Vec::new());
        assert_eq!((of(429, Some("7")).pause(), of(503, Some("2")).pause()), (Some(Duration::from_secs(7)), Some(Duration::from_secs(2))));
        for (code, after) in [(429, None), (429, Some("soon")), (200, Some("7")), (403, Some("7"))] {
            assert_eq!(of(code, after).pause(), None, "{code} {after:?}");
        }
        assert!(of(429, Some("7")).passing() && of(500, None).passing() && !of(403, None).passing());
        let unknown = of(429, Some("7")).understood(Purpose::Update, "IPAMBlock");
        assert!(matches!(unknown, Err(StoreError::Unavailable(_))), "of a write it is an unknown outcome all the same");
    }

    #[test]
    fn d_75_everything_else_of_a_write_is_an_unknown_outcome() {
        for code in [401, 410, 429, 500, 502, 503, 504] {
            assert!(matches!(meaning(code, "", "later", true, Purpose::Update), StoreError::Unavailable(_)), "{code}");
        }
        assert!(matches!(Answer::Nothing("cut".into()).understood(Purpose::Create, "IPAMBlock"), Err(StoreError::Unavailable(_))));
        assert!(deleted(br#"{"kind":"Status","status":"Success"}"#).is_ok());
        assert!(matches!(deleted(br#"{"kind":"IPAMBlock"}"#), Err(StoreError::Refused(_))), "a finalizer holds it");
    }
}
